"""A bad master certifies a site with a grant that names nothing, so that its gateway could order everything.

No honest program signs or keeps such a certificate; whether it counts is for each device to say. The master here may
even run any command, so that nothing but the grant itself stands in the way.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.identity import IdentityFile
from device_agent.protocol import topics
from device_agent.trust import cose
from device_agent.trust.claims import POL
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.keys import SigningKey
from device_agent.trust.policy import SitePolicy
from device_agent.trust.site_certificate import SITE_TYP
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import running_broker
from tests.peers.fleet import Party, party
from tests.peers.played_station import PlayedStation, a_job, played_station

EVERYTHING: list[dict[str, Any]] = [
    {"fun": ["*"]},
    {"fun": ["test.*", "*.*"]},
    {"fun": ["**"]},
    {"fun": ["[!x]*"]},
    {"fun": ["test.*"], "org": {"salt": ["*"]}},
]


@pytest.fixture
async def station(tmp_path: Path) -> AsyncIterator[PlayedStation]:
    async with running_broker(tmp_path) as broker, played_station(broker.address) as made:
        yield made


@pytest.fixture
async def agent(station: PlayedStation, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    made = AgentProcess(station, tmp_path)
    await made.start()
    await station.joined([NAME])
    yield made
    await made.end(signal.SIGKILL)


def granting(station: PlayedStation, holder: Party, issued: int, **policy: Any) -> bytes:
    """A certificate for these keys with this policy, whether or not anybody would sign one; by master A."""
    fleet = station.site.fleet
    claims = dict(cose.read(fleet.certify_site(holder, issued=issued), SITE_TYP).claims)
    claims[POL] = {**claims[POL], **policy}
    return cose.sign(fleet.a.key, SITE_TYP, claims)


async def ordered(station: PlayedStation, number: int, marks: Path, key: SigningKey) -> None:
    """A command for every device, signed by a gateway."""
    job = a_job(number, fun="cmd.run", arg=[f"/bin/sh -c 'echo {number} >> {marks}'"])
    await station.link.publish(topics.group_job("lisbon"), job_delivery(station.sealed(job, key), 300.0, None))


async def still_runs(station: PlayedStation, number: int) -> None:
    """What was said before has been judged, and the master is obeyed as ever."""
    await station.deliver(a_job(number))
    [told] = await station.returned(a_job(number).jid, NAME)
    assert told.outcome == "ok"


async def test_a_certificate_that_grants_everything_is_none_and_no_job_is_taken_under_it(
    station: PlayedStation, agent: AgentProcess, tmp_path: Path
) -> None:
    site, marks = station.site, tmp_path / "marks"
    rogue = Party("lisbon", party("rogue").key, party("rogue").kem, party("rogue").curve)
    wide = [
        granting(station, holder, site.now() + place, **policy)
        for place, policy in enumerate(EVERYTHING, start=1)
        for holder in (site.fleet.site, rogue)
    ]
    honest = list(site.certificates)
    site.certificates = [*honest, *wide]
    await station.publish_bundle()
    await still_runs(station, 1)
    assert "refused reason=grant_too_wide " in agent.log

    # The gateway that it is for has what it had; the one that it was made up for is nobody. So also after a start.
    for turn in (1, 2):
        await ordered(station, 10 * turn, marks, site.key)
        [told] = await station.returned(a_job(10 * turn).jid, NAME)
        assert (told.outcome, told.why) == ("refused", "not_granted: cmd.run")
        await ordered(station, 10 * turn + 1, marks, rogue.key)
        await still_runs(station, 10 * turn + 2)
        assert station.returns[a_job(10 * turn + 1).jid][NAME] == []
        assert "refused reason=unknown_issuer " in agent.log
        if turn == 1:
            assert await agent.end(signal.SIGTERM) == 0
            kept = IdentityFile(agent.folder / "state").load()
            assert kept is not None
            assert [each.body for each in kept.anchor.site_certificates()] == honest
            await agent.start()
            await station.joined([NAME], 2)
    assert not marks.exists()

    # The test could have failed: what names something counts, by the same hand and on the same way.
    named = SitePolicy(fun=("test.*", "cmd.*"))
    site.certificates = [site.fleet.certify_site(policy=named, issued=site.now() + len(EVERYTHING) + 1)]
    await station.publish_bundle()
    await ordered(station, 30, marks, site.key)
    [told] = await station.returned(a_job(30).jid, NAME)
    assert told.outcome == "ok"
    assert marks.read_text() == "30\n"
