"""A gateway is taken over while it runs: it lies about the time, and says again what it has heard of its master.

The gateway is the test's, with every key that one has; the device is a real agent with its flash.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.identity import Identity, IdentityFile
from device_agent.protocol import bitmap, topics
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.revocations import sign_revocations
from device_agent.trust.sessions import UnverifiedOpening
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import running_broker
from tests.peers.played_station import PlayedStation, a_job, commanding_fleet, played_station
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until

DAY = 86_400


class Liar(TrustedSite):
    """Some weeks after its certificate was issued; what it tells devices of the time is off by ``lie`` seconds."""

    lie = 0

    def now(self) -> int:
        return super().now() + 20 * DAY

    def word(self, opening: UnverifiedOpening, **changes: Any) -> bytes:
        return super().word(opening, **{"issued": self.now() + self.lie, **changes})


@pytest.fixture
async def station(tmp_path: Path) -> AsyncIterator[PlayedStation]:
    async with (
        running_broker(tmp_path) as broker,
        played_station(broker.address, Liar(commanding_fleet("lisbon"))) as made,
    ):
        yield made


@pytest.fixture
async def agent(station: PlayedStation, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    made = AgentProcess(station, tmp_path)
    await made.start()
    await station.joined([NAME])
    yield made
    await made.end(signal.SIGKILL)


async def lies(station: PlayedStation, seconds: int) -> None:
    """From its next session on the device is told this."""
    assert isinstance(station.site, Liar)
    station.site.lie = seconds
    times = len(station.hellos[NAME])
    await station.restart()
    await station.joined([NAME], times + 1)


def marking(path: Path, number: int, **fields: Any) -> Any:
    return a_job(number, fun="cmd.run", arg=[f"/bin/sh -c 'echo {number} >> {path}'"], **fields)


async def outcome(station: PlayedStation, number: int, times: int = 1) -> str:
    told = await station.returned(a_job(number).jid, NAME, times)
    return told[-1].outcome


def flash(agent: AgentProcess) -> Identity:
    found = IdentityFile(agent.folder / "state").load()
    assert found is not None
    return found


async def test_a_gateway_that_lives_in_the_future_delays_jobs_and_moves_no_floor(
    station: PlayedStation, agent: AgentProcess, tmp_path: Path
) -> None:
    marks, site = tmp_path / "marks", station.site
    await station.deliver(marking(marks, 1))
    assert await outcome(station, 1) == "ok"
    # Within its own certificate it may say what it likes.
    await lies(station, 9 * DAY)
    await station.deliver(marking(marks, 2))
    assert await outcome(station, 2) == "expired"
    # Whatever else it signs is from the future as well.
    did, later = station.did(NAME), site.now() + 9 * DAY
    site.rotate()
    said = [
        (topics.device_ep("lisbon", did), site.epoch_for(did, issued=later)),
        (topics.group_ack("lisbon"), site.ack(a_job(2).jid, bits=bitmap.pack([0]), issued=later)),
        (topics.trust("lisbon"), site.bundle(revocations=[site_list(site, later)])),
        (topics.trust("lisbon"), site.bundle(prekey=site.signed_prekey(issued=later))),
        (topics.device_job("lisbon", did), site.renamed(did, NAME, issued=later)),
    ]
    for topic, payload in said:
        await station.link.publish(topic, payload)
    await station.deliver(marking(marks, 3, late="run"))
    assert await outcome(station, 3) == "expired"
    assert await agent.end(signal.SIGTERM) == 0
    assert flash(agent).floor.value <= site.now()
    assert flash(agent).groups.epoch == site.epoch
    # With the truth, at the next start or the next session, the master is obeyed again.
    site.lie = 0  # type: ignore[attr-defined]  # a field of the station played here alone
    await agent.start()
    await station.joined([NAME], 3)
    await station.deliver(marking(marks, 4))
    assert await outcome(station, 4) == "ok"
    # And beyond its certificate it is not believed at all.
    site.lie = 40 * DAY  # type: ignore[attr-defined]  # likewise here alone
    await station.restart()
    await until(lambda: "refused reason=wrong_time" in agent.log, what="the refusal")
    assert len(station.hellos[NAME]) == 3
    assert marks.read_text() == "1\n4\n"


def site_list(site: TrustedSite, issued: int) -> bytes:
    return sign_revocations(site.key, version=1, kids=[bytes(8)], issued=issued, site="lisbon")


async def test_a_gateway_that_lives_in_the_past_runs_nothing_again_and_nothing_that_has_expired(
    station: PlayedStation, agent: AgentProcess, tmp_path: Path
) -> None:
    marks, site = tmp_path / "marks", station.site
    an_hour_ago: dict[str, Any] = {"issued": site.now() - 3600, "expires": site.now() - 3300}
    withheld = [station.sealed(marking(marks, 100 + turn), **an_hour_ago) for turn in (1, 2)]
    recorded = station.sealed(marking(marks, 2))
    await station.link.publish(topics.group_job("lisbon"), job_delivery(recorded, 300.0, None))
    assert await outcome(station, 2) == "ok"
    await station.confirm([a_job(2).jid], NAME)

    async def said_again(turn: int) -> str:
        """The answer of then to the job of then; what was withheld is judged."""
        for body in (recorded, withheld[turn - 1]):
            await station.link.publish(topics.group_job("lisbon"), job_delivery(body, 300.0, None))
        assert await outcome(station, 2, 1 + turn) == "ok"
        return await outcome(station, 100 + turn)

    # What the master signed last says what time it is at least, and what it signs now is obeyed.
    await lies(station, -20 * DAY)
    assert await said_again(1) == "expired"
    await station.deliver(marking(marks, 3))
    assert await outcome(station, 3) == "ok"
    # Also with the flash alone, after a power cut.
    await agent.end(signal.SIGKILL)
    await agent.start()
    await station.joined([NAME], 3)
    assert await said_again(2) in {"expired", "refused"}
    await lies(station, 0)
    await station.deliver(marking(marks, 4))
    assert await outcome(station, 4) == "ok"
    assert marks.read_text() == "2\n3\n4\n"
