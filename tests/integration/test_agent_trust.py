"""A real agent, and somebody with every right at its broker: what is forged or said twice changes nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.agent import Agent
from device_agent.clock import Clock
from device_agent.protocol import bitmap, topics
from device_agent.protocol.messages import Certificate, Reseal
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.sessions import sign_prekey
from tests.peers.agent_process import NAME, AgentProcess, agent_settings, joined
from tests.peers.broker import Broker
from tests.peers.fleet import party, signing_key
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
"""An agent whose machine loses its power when a job is written down as started, and before it does anything."""


@pytest.fixture
async def station(broker: Broker) -> AsyncIterator[PlayedStation]:
    async with played_station(broker.address) as made:
        yield made


@pytest.fixture
async def agent(station: PlayedStation, tmp_path: Path) -> AsyncIterator[Agent]:
    async with joined(station, agent_settings(station, tmp_path)) as made:
        yield made


async def still_runs(station: PlayedStation, number: int = 1000) -> None:
    """What was said before has been judged, and the agent goes on as if it had not been said."""
    await station.deliver(a_job(number))
    [told] = await station.returned(a_job(number).jid, NAME)
    assert told.outcome == "ok"


# --- forged and repeated ---------------------------------------------------------------------------------------------


async def test_jobs_that_nobody_who_may_has_signed_are_counted_and_not_answered(
    station: PlayedStation, agent: Agent
) -> None:
    thief = signing_key("thief")
    good = station.sealed(a_job(1))
    forged = [
        station.sealed(a_job(1), thief),
        good.replace(station.site.fleet.a.kid, station.site.fleet.b.kid),
        good[:-1] + bytes([good[-1] ^ 1]),
        station.sealed(a_job(1), site="porto"),
    ]
    for body in forged:
        await station.link.publish(topics.group_job("lisbon"), job_delivery(body, 300.0, None))
    await still_runs(station)
    assert agent.counters.refusals == {"unknown_issuer": 1, "bad_signature": 2, "wrong_site": 1}
    assert station.returns[a_job(1).jid][NAME] == []


async def test_a_job_that_is_said_again_runs_once_in_this_process_and_in_the_next(
    station: PlayedStation, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    job = a_job(1, fun="cmd.run", arg=[f"/bin/sh -c 'echo ran >> {marks}'"])
    recorded = job_delivery(station.sealed(job), 300.0, None)
    async with joined(station, agent_settings(station, tmp_path)):
        for times in (1, 2):
            await station.link.publish(topics.group_job("lisbon"), recorded)
            await station.returned(job.jid, NAME, times)
        await station.confirm([job.jid], NAME)
    async with joined(station, agent_settings(station, tmp_path)):
        await station.link.publish(topics.group_job("lisbon"), recorded)
        told = await station.returned(job.jid, NAME, 3)
        assert {each.outcome for each in told} == {"ok"}
    assert marks.read_text() == "ran\n"


async def test_cancels_and_confirmations_of_nobody_do_nothing(station: PlayedStation, agent: Agent) -> None:
    site, thief = station.site, signing_key("thief")
    await station.deliver(a_job(1))
    await station.returned(a_job(1).jid, NAME)
    bits = bitmap.pack([0])
    for key in (thief, site.fleet.a.key):
        await station.link.publish(topics.group_ack("lisbon"), site.ack(a_job(1).jid, bits=bits, key=key))
        await station.link.publish(topics.group_job("lisbon"), site.cancel(a_job(2).jid, bits, key=key))
    await still_runs(station)
    assert agent.counters.refusals == {"unknown_issuer": 4}
    assert agent._journal.unconfirmed() == [a_job(1).jid, a_job(1000).jid]
    await still_runs(station, 2)
    await station.confirm([a_job(1).jid, a_job(2).jid, a_job(1000).jid])
    await until(lambda: agent._journal.unconfirmed() == [], what="the site's own confirmation")


async def test_a_retained_message_of_a_stranger_changes_nothing(
    station: PlayedStation, agent: Agent, tmp_path: Path
) -> None:
    thief = party("thief")
    forged = sign_prekey(
        thief.key, site="lisbon", public=thief.kem.public, issued=station.site.now(), instance=b"stranger"
    )
    session = agent._guard.session if agent._guard is not None else ""
    await station.link.publish(topics.trust("lisbon"), station.site.bundle(prekey=forged), retain=True)
    await still_runs(station)
    assert agent.counters.refusals == {"unknown_issuer": 1}
    assert agent._guard is not None
    assert agent._guard.session == session
    # A device that finds it when it connects says nothing until the station has shown itself.
    second = agent_settings(station, tmp_path / "second", serial="cam-8")
    async with Agent(second) as other:
        await until(lambda: other.counters.refusals["unknown_issuer"], what="its refusal")
        assert station.hellos["cam-8"] == []
        await station.publish_bundle()
        await station.joined(["cam-8"])


async def test_frames_of_others_and_frames_said_twice_are_not_heard(station: PlayedStation, agent: Agent) -> None:
    did = agent.identity.did
    frame = station.site.renamed(did, "gate-north")
    await station.link.publish(topics.device_job("lisbon", did), frame)
    await station.joined([NAME], 2)
    await station.link.publish(topics.device_job("lisbon", did), frame)
    await station.link.publish(topics.device_job("lisbon", did), b"\x01\x02" + bytes(60))
    await still_runs(station)
    assert agent.counters.refusals == {"replayed_frame": 1, "unknown_session": 1}


# --- power and time --------------------------------------------------------------------------------------------------


async def test_power_lost_between_the_number_and_the_deed_loses_the_job_and_runs_nothing_twice(
    station: PlayedStation, tmp_path: Path
) -> None:
    early, job = station.sealed(a_job(1)), a_job(2)
    started = station.sealed(job)
    process = AgentProcess(station, tmp_path)
    await process.start(CRASH)
    assert process.process is not None
    await station.joined([NAME])
    await station.link.publish(topics.group_job("lisbon"), job_delivery(started, 300.0, None))
    async with asyncio.timeout(60):
        assert await process.process.wait() == -signal.SIGKILL
    await process.start()
    try:
        [told] = await station.returned(job.jid, NAME)
        assert (told.outcome, told.executions) == ("unknown", 1)
        await station.joined([NAME], 2)
        # An older number has no outcome: the station may have it sealed again.
        await station.link.publish(topics.group_job("lisbon"), job_delivery(early, 300.0, None))
        await until(lambda: station.reseals, what="the wish for another seal")
        assert station.reseals == [(NAME, Reseal(a_job(1).jid, "stale_seq"))]
        await still_runs(station, 1)
        [opening] = station.site.openings[station.did(NAME)][-1:]
        assert dict(opening.marks)[station.site.fleet.a.kid] >= station.site.now() * 1000 - 60_000
    finally:
        await process.end(signal.SIGKILL)


class WrongClock(Clock):
    """A machine without a battery, or with one that was set by a fool."""

    def __init__(self, wall: float) -> None:
        self._wall = wall

    def wall(self) -> float:
        return self._wall


@pytest.mark.parametrize("wall", [0.0, 4.0e9], ids=["1970", "2096"])
async def test_what_the_machine_believes_of_the_time_does_not_matter(
    station: PlayedStation, tmp_path: Path, wall: float
) -> None:
    async with Agent(agent_settings(station, tmp_path), WrongClock(wall)) as agent:
        await station.joined([NAME])
        await still_runs(station)
        # By the station's time this one is over.
        late = station.sealed(a_job(2), issued=station.site.now() - 500, expires=station.site.now() - 200)
        await station.link.publish(topics.group_job("lisbon"), job_delivery(late, 300.0, None))
        [told] = await station.returned(a_job(2).jid, NAME)
        assert told.outcome == "expired"
        assert agent.counters.refusals == {"expired": 1}


# --- what changes at a site ------------------------------------------------------------------------------------------


async def test_a_job_of_an_old_epoch_is_sealed_again_and_a_missing_key_is_asked_for(
    station: PlayedStation, agent: Agent
) -> None:
    did = agent.identity.did
    old = job_delivery(station.sealed(a_job(1)), 300.0, None)
    station.site.rotate()
    await station.deliver(a_job(1))
    await until(lambda: station.epochs_wanted[NAME], what="the wish for the key")
    await station.link.publish(topics.device_ep("lisbon", did), station.site.epoch_for(did, revocation=True))
    await station.link.publish(topics.group_job("lisbon"), old)
    await until(lambda: len(station.reseals) == 2, what="the wishes for another seal")
    assert [reseal.reason for _, reseal in station.reseals] == ["unknown_epoch", "stale_epoch"]
    assert station.returns[a_job(1).jid][NAME] == []
    await still_runs(station, 1)


async def test_another_start_of_the_station_is_noticed_and_the_last_will_still_speaks(
    station: PlayedStation, tmp_path: Path
) -> None:
    process = AgentProcess(station, tmp_path)
    await process.start()
    await station.joined([NAME])
    await station.restart()
    await station.joined([NAME], 2)
    await process.end(signal.SIGKILL)
    await until(lambda: station.gone[NAME], what="the last will")
    assert station.gone[NAME][-1].session == station.hellos[NAME][-1].session


async def test_a_replaced_gateway_takes_the_site_over_and_gives_its_devices_new_certificates(
    station: PlayedStation, tmp_path: Path
) -> None:
    async with joined(station, agent_settings(station, tmp_path)) as agent:
        did, before = agent.identity.did, agent.identity.certificate
        station.site.replace_gateway()
        await station.publish_bundle()
        await station.joined([NAME], 2)
        await until(lambda: station.epochs_wanted[NAME], what="the wish for the new gateway's key")
        await station.link.publish(topics.device_ep("lisbon", did), station.site.epoch_for(did))
        await station.say(Certificate(station.site.certify(did, "gate-north")), NAME)
        await station.joined([NAME], 3)
        assert station.hellos[NAME][-1].grains["id"] == "gate-north"
        await station.deliver(a_job(1, tgt="gate-*"))
        await station.returned(a_job(1).jid, NAME)
    async with joined(station, agent_settings(station, tmp_path)) as agent:
        assert agent.identity.name == "gate-north"
        assert agent.identity.certificate != before
        await still_runs(station)
