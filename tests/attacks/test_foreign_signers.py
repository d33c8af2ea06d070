"""Holes that were found in the first prototype of these proofs, tried on a real agent by whoever signs well elsewhere.

A site lets its own devices hear group keys and revocations, and nobody else's; versions count for each signer; and what
a master signs of the future is not the time.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from device_agent.identity import Identity, IdentityFile
from device_agent.protocol import topics
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.epochs import EPOCH_MAX
from device_agent.trust.floor import MASTER_LIMIT_SECONDS
from device_agent.trust.revocations import sign_revocations
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import running_broker
from tests.peers.fleet import YEAR, party, signing_key
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.waiting import until


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
    if made.process is not None and made.process.returncode is None:
        await made.end(signal.SIGKILL)


async def still_runs(station: PlayedStation, number: int) -> None:
    """What was said before has been judged, and the master is obeyed as ever."""
    await station.deliver(a_job(number))
    [told] = await station.returned(a_job(number).jid, NAME)
    assert told.outcome == "ok"


async def flash(agent: AgentProcess) -> Identity:
    """What is there after an orderly stop."""
    assert await agent.end(signal.SIGTERM) == 0
    return on_flash(agent)


def on_flash(agent: AgentProcess) -> Identity:
    found = IdentityFile(agent.folder / "state").load()
    assert found is not None
    return found


async def test_a_group_key_by_the_certificate_of_another_site_is_not_taken(
    station: PlayedStation, agent: AgentProcess
) -> None:
    site, did = station.site, station.did(NAME)
    porto = party("porto")
    certificate = site.fleet.certify_site(porto)
    await station.link.publish(topics.trust("lisbon"), site.bundle(site_certificates=[*site.certificates, certificate]))
    last = site.epoch_for(did, key=porto.key, epoch=EPOCH_MAX, revocation=True, group_key=bytes(32))
    await station.link.publish(topics.device_ep("lisbon", did), last)
    await still_runs(station, 1)
    assert "refused reason=wrong_site " in agent.log
    assert "refused reason=unknown_issuer " in agent.log
    # Its own site counts on from where it was.
    site.rotate()
    await station.link.publish(topics.device_ep("lisbon", did), site.epoch_for(did, revocation=True))
    await still_runs(station, 2)
    assert (await flash(agent)).groups.epoch == 2


async def test_a_site_revokes_nobody_above_it_and_its_versions_are_nobody_elses(
    station: PlayedStation, agent: AgentProcess
) -> None:
    site, fleet = station.site, station.site.fleet
    above = [fleet.a.kid, fleet.b.kid, fleet.roots[0].kid, fleet.site.kid]
    for version, kid in enumerate(above, start=1):
        forged = fleet.revoke(fleet.site, kid, version=2**62 + version, site="lisbon")
        await station.link.publish(topics.trust("lisbon"), site.bundle(revocations=[forged]))
    # The highest version there is, of a list that it may sign; and then the first ones of a master and a successor.
    gone = signing_key("gone")
    last = fleet.revoke(fleet.site, gone.kid, version=2**63 - 1, site="lisbon")
    first = fleet.revoke(fleet.a, signing_key("porto sig").kid, version=1)
    site.revocations = [last, first]
    await station.publish_bundle()
    await still_runs(station, 1)
    assert agent.log.count("refused reason=") == agent.log.count("refused reason=not_its_to_revoke ") == 1
    old = site.key
    site.replace_gateway()
    successor = replace(party("lisbon again"), name="lisbon")
    site.revocations = [
        fleet.revoke(fleet.a, old.kid, version=2),
        fleet.revoke(successor, gone.kid, version=1, site="lisbon"),
    ]
    await station.publish_bundle()
    await station.joined([NAME], 2)
    anchor = (await flash(agent)).anchor
    assert [anchor.site_version(kid) for kid in (fleet.a.kid, successor.kid)] == [2, 1]
    assert anchor.device_revoked(gone.kid, "lisbon")
    assert anchor.device_revoked(old.kid)


async def test_a_master_that_signs_of_the_future_moves_a_device_that_knows_the_time_by_a_day_at_most(
    station: PlayedStation, agent: AgentProcess
) -> None:
    """One stolen master's key must not push devices past everything that expires: not at once, and not step by step."""
    site, fleet, did = station.site, station.site.fleet, station.did(NAME)
    later, hours = site.now() + 10 * YEAR, [1, 20, 40, 60, 80, 90_000]
    for number, ahead in enumerate(hours, start=1):
        times = {"issued": site.now() + ahead * 3600, "expires": site.now() + ahead * 3600 + 300}
        body = station.sealed(a_job(number), fleet.b.key, **times)
        await station.link.publish(topics.group_job("lisbon"), job_delivery(body, 300.0, None))
    certificate = fleet.certify_site(master=fleet.b, issued=later, expires=later + YEAR)
    revoked = sign_revocations(fleet.b.key, version=1, kids=[bytes(8)], issued=later)
    said = [
        (topics.trust("lisbon"), site.bundle(site_certificates=[*site.certificates, certificate])),
        (topics.trust("lisbon"), site.bundle(revocations=[revoked])),
        (topics.device_ep("lisbon", did), site.epoch_for(did, key=fleet.b.key, issued=later, epoch=2)),
    ]
    for topic, payload in said:
        await station.link.publish(topic, payload)
    [told] = await station.returned(a_job(len(hours)).jid, NAME)
    assert (told.outcome, told.why.partition(":")[0]) == ("refused", "issued_in_future")
    # Its site is still its site, and the other master's jobs run as soon as they live a day longer.
    site.epoch = 2
    await station.restart()
    await station.joined([NAME], 2)
    body = station.sealed(a_job(100), issued=site.now(), expires=site.now() + 2 * 86_400)
    await station.link.publish(topics.group_job("lisbon"), job_delivery(body, 300.0, None))
    [told] = await station.returned(a_job(100).jid, NAME)
    assert told.outcome == "ok"
    assert (await flash(agent)).floor.value <= site.now() + 86_400


async def test_a_master_that_signs_of_the_future_moves_no_floor_beyond_what_root_holders_signed(
    station: PlayedStation, agent: AgentProcess, tmp_path: Path
) -> None:
    """A device that has not been told the time cannot know better; the bound is what keeps that from being for ever."""
    fleet, later, marks = station.site.fleet, station.site.now() + 10 * YEAR, tmp_path / "marks"
    poison = station.sealed(a_job(1), fleet.b.key, issued=later, expires=later + 300)
    await agent.end(signal.SIGTERM)
    station.opens = False
    await agent.start()
    bound = fleet.root.issued + MASTER_LIMIT_SECONDS

    async def moved() -> bool:
        await station.link.publish(topics.group_job("lisbon"), job_delivery(poison, 300.0, None))
        return on_flash(agent).floor.value == bound

    await until(moved, what="the bounded floor on flash")
    # What is signed for that day runs.
    then: dict[str, Any] = {"issued": bound + 100, "expires": bound + 400}
    body = station.sealed(a_job(3, fun="cmd.run", arg=[f"/bin/sh -c 'echo ran >> {marks}'"]), **then)
    await station.link.publish(topics.group_job("lisbon"), job_delivery(body, 300.0, None))
    await until(marks.exists, what="its trace")
    assert on_flash(agent).floor.value == bound
