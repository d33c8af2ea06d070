"""What was said to a device is said again, by whoever recorded it: rekeys, lists, jobs, the answer to its request.

The device is a real agent, whose machine loses its power between the moment that it wrote a job down and the moment
that it would have run. Jobs, frames, openings and returns at a gateway are in ``tests/system/test_replayed_messages``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.identity import Identity, IdentityFile
from device_agent.protocol import topics
from device_agent.trust.deliveries import job_delivery
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import running_broker
from tests.peers.fleet import signing_key
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.waiting import until

CRASH = """\
import os, pathlib, signal, sys
import device_agent.loader, device_agent.running

async def call(*_):
    os.kill(os.getpid(), signal.SIGKILL)

device_agent.loader.call = call
sys.exit(device_agent.running.main(pathlib.Path(sys.argv[1])))
"""
"""An agent whose machine loses its power when a job is on its flash as started, and before it does anything."""


@pytest.fixture
async def station(tmp_path: Path) -> AsyncIterator[PlayedStation]:
    async with running_broker(tmp_path) as broker, played_station(broker.address) as made:
        yield made


def flash(agent: AgentProcess) -> Identity:
    found = IdentityFile(agent.folder / "state").load()
    assert found is not None
    return found


def known(agent: AgentProcess, master: bytes) -> tuple[int, int, int]:
    """The versions of what a device has on its flash: root list, a master's list of revoked keys, group key."""
    found = flash(agent)
    assert found.anchor.root is not None
    return found.anchor.root.version, found.anchor.site_version(master), found.groups.epoch


async def test_everything_that_was_said_before_a_power_cut_is_said_again_and_nothing_goes_back(
    station: PlayedStation, tmp_path: Path
) -> None:
    site, fleet, marks = station.site, station.site.fleet, tmp_path / "marks"
    agent = AgentProcess(station, tmp_path)
    await agent.start(CRASH)
    await station.joined([NAME])
    did, job = station.did(NAME), topics.group_job("lisbon")
    recorded: list[tuple[str, bytes]] = [(topics.trust("lisbon"), site.bundle())]
    dropped = station.sealed(a_job(1, fun="cmd.run", arg=[f"/bin/sh -c 'echo 1 >> {marks}'"]), fleet.b.key)

    # Two group keys, a root list without master B, and two lists of revoked keys.
    for _ in range(2):
        site.rotate()
        recorded.append((topics.device_ep("lisbon", did), site.epoch_for(did)))
    fleet.next_root(masters=fleet.root.masters[:1])
    recorded.append((topics.trust("lisbon"), site.bundle()))
    for version in (1, 2):
        kids = [signing_key(f"gone {number}").kid for number in range(version)]
        site.revocations = [fleet.revoke(fleet.a, *kids, version=version)]
        recorded.append((topics.trust("lisbon"), site.bundle()))
    for topic, payload in recorded[1:]:
        await station.link.publish(topic, payload)
    await until(lambda: known(agent, fleet.a.kid) == (3, 2, 3), what="all of it on flash")

    started = station.sealed(a_job(2, fun="cmd.run", arg=[f"/bin/sh -c 'echo 2 >> {marks}'"]))
    recorded += [(job, job_delivery(body, 300.0, None)) for body in (dropped, started)]
    await station.link.publish(*recorded[-1])
    assert agent.process is not None
    async with asyncio.timeout(60):
        assert await agent.process.wait() == -signal.SIGKILL

    await agent.start()
    try:
        [told] = await station.returned(a_job(2).jid, NAME)
        assert (told.outcome, told.executions) == ("unknown", 1)
        await station.joined([NAME], 2)
        for topic, payload in recorded:
            await station.link.publish(topic, payload)
        await station.deliver(a_job(3, fun="cmd.run", arg=[f"/bin/sh -c 'echo 3 >> {marks}'"]))
        [told] = await station.returned(a_job(3).jid, NAME)
        assert told.outcome == "ok"
        assert marks.read_text() == "3\n"
        assert {each.outcome for each in station.returns[a_job(2).jid][NAME]} == {"unknown"}
        assert station.returns[a_job(1).jid][NAME] == []
        for reason in ("replayed_epoch", "rollback", "unknown_issuer"):
            assert f"refused reason={reason} " in agent.log
        assert await agent.end(signal.SIGTERM) == 0
        assert known(agent, fleet.a.kid) == (3, 2, 3)
    finally:
        if agent.process.returncode is None:
            await agent.end(signal.SIGKILL)


async def test_the_answer_to_a_request_of_before_lets_nobody_in(station: PlayedStation, tmp_path: Path) -> None:
    """The device dies between asking and hearing, and asks anew: the first answer is sealed to it, signed, and old."""
    station.answers = False
    agent = AgentProcess(station, tmp_path)
    await agent.start()
    site = station.site
    await until(lambda: site.requests, what="the first request")
    [(did, first)] = site.requests.items()
    recorded = site.answer(first)
    await agent.end(signal.SIGKILL)
    await agent.start()
    try:
        await until(lambda: site.requests[did].nonce != first.nonce, what="another request by the same identity")
        await station.link.publish(topics.enrol_response("lisbon", did), recorded)
        await until(lambda: "refused reason=bad_tag " in agent.log, what="the refusal")
        assert list(site.requests) == [did]
        assert not flash(agent).joined
        assert station.hellos[NAME] == []
        station.answers = True
        await station.joined([NAME])
        # Also later, when it belongs to the site.
        await station.link.publish(topics.enrol_response("lisbon", did), recorded)
        await station.deliver(a_job(1))
        [told] = await station.returned(a_job(1).jid, NAME)
        assert told.outcome == "ok"
        assert flash(agent).password == site.passwords[did]
    finally:
        await agent.end(signal.SIGKILL)
