"""The story: however often a job is delivered, each device runs it once.

Deliveries are repeated: to devices that said nothing, after every restart of a station or a broker, and by whoever
replays what was on the wire. Each device counts its own executions for each jid, and a repeat is answered from its
journal. A device that died in the middle of a job says that it does not know, and does not try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from device_agent.protocol import topics
from device_agent.trust.deliveries import JobDelivery, read_delivery
from tests.peers.stranger import Message, stranger
from tests.peers.system import System, assert_exactly_once, assert_executed_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 50
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
REPLAYS = 20


def replay(system: System, while_he_listens: Callable[[], None]) -> list[Message]:
    """Record what is said to devices during a call, then say it all again, many times."""

    async def listen_and_repeat() -> list[Message]:
        async with stranger(system, "lisbon") as somebody:
            await somebody.listen("lisbon")
            await asyncio.to_thread(while_he_listens)
            heard = [(topic, payload) for topic, payload in await somebody.heard() if "/up/" not in topic]
            for _ in range(REPLAYS):
                await somebody.say(heard)
        return heard

    return asyncio.run(listen_and_repeat())


def jobs_in(heard: list[Message]) -> int:
    """How many deliveries of jobs there are to everybody."""
    said = [read_delivery(payload) for topic, payload in heard if topic == topics.group_job("lisbon")]
    return sum(isinstance(delivery, JobDelivery) for delivery in said)


def test_a_delivery_that_is_repeated_is_answered_from_the_journal(beside_a_broker: System) -> None:
    site = beside_a_broker
    repeats = site.report()["repeats_answered_from_journal"]
    jids = []

    def work() -> None:
        for tgt in ("cam-*", "cam-00001"):
            jid = site.issue("central", tgt, "test.ping")
            site.ended("central", jid)
            jids.append(jid)

    heard = replay(site, work)
    # Each device answers each repeat of the one job; of the other one it does so for which that is.
    expected = REPLAYS * (jobs_in(heard) * DEVICES + 1)
    assert jobs_in(heard) > 0
    site.until(lambda: site.report()["repeats_answered_from_journal"] - repeats >= expected, "repeats are answered")
    report = site.report()
    assert_executed_once(report, jids[0], DEVICES)
    assert_executed_once(report, jids[1], 1)
    assert_exactly_once(site.ended("central", jids[0]), IDS)
    assert_exactly_once(site.ended("lisbon", jids[0]), IDS)
    assert_exactly_once(site.ended("central", jids[1]), ["cam-00001"])


async def test_a_job_that_arrives_many_times_while_it_runs_runs_once(beside_a_broker: System) -> None:
    site = beside_a_broker
    repeats = site.report()["repeats_answered_from_journal"]
    async with stranger(site, "lisbon") as somebody:
        await somebody.listen("lisbon")
        jid = site.issue("central", "cam-*", "test.sleep", 12)
        delivery = await somebody.hears("/g/all/job", lambda payload: jid.encode() in payload)
        site.until(lambda: site.waiting("lisbon", jid) == {"running": DEVICES}, "every device runs it")
        await somebody.say([(topics.group_job("lisbon"), delivery)] * REPLAYS)
    site.ended("central", jid)
    report = site.report()
    assert report["repeats_answered_from_journal"] - repeats >= REPLAYS * DEVICES
    assert_executed_once(report, jid, DEVICES)


def test_a_connection_that_is_cut_in_the_middle_does_not_make_it_run_again(beside_a_broker: System) -> None:
    site = beside_a_broker
    jid = site.issue("central", "cam-*", "test.sleep", 12)
    site.until(lambda: site.waiting("lisbon", jid) == {"running": DEVICES}, "every device runs it")
    site.kill("broker")
    site.add_broker()
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)


def test_an_agent_that_was_killed_in_the_middle_does_not_know_and_does_not_try_again(beside_a_broker: System) -> None:
    site = beside_a_broker
    site.add_agent("door-2", "lisbon")
    site.until(lambda: site.is_here("door-2"), "it is here")
    marks = site.folder / "marks-2"
    command = f"echo ran >> {marks}; exec sleep 60"
    jid = site.issue("central", "door-2", "cmd.run", command)
    site.until(marks.exists, "the command runs")
    site.kill("door-2")
    site.add_agent("door-2", "lisbon")
    (outcome,) = site.ended("central", jid).outcomes
    assert outcome.outcome == "unknown"
    assert outcome.why
    assert marks.read_text() == "ran\n"

    # It works on, and remembers through another restart.
    again = site.issue("central", "door-2", "test.ping")
    assert_exactly_once(site.ended("central", again), ["door-2"])
    site.stop("door-2")
    site.until(lambda: not site.is_here("door-2"), "it has left")
    site.add_agent("door-2", "lisbon")
    site.until(lambda: site.is_here("door-2"), "it is here")
    assert marks.read_text() == "ran\n"


def test_a_job_that_was_answered_before_a_kill_of_the_agent_is_answered_from_its_file(beside_a_broker: System) -> None:
    site = beside_a_broker
    site.add_agent("door-1", "lisbon")
    site.until(lambda: site.is_here("door-1"), "it is here")
    marks = site.folder / "marks"
    jids = []

    def work() -> None:
        jid = site.issue("central", "door-1", "cmd.run", f"echo ran >> {marks}")
        site.ended("central", jid)
        jids.append(jid)
        site.kill("door-1")
        site.until(lambda: not site.is_here("door-1"), "it has left")
        site.add_agent("door-1", "lisbon")
        site.until(lambda: site.is_here("door-1"), "it is here")

    replay(site, work)
    assert_exactly_once(site.ended("central", site.issue("central", "door-1", "test.ping")), ["door-1"])
    assert marks.read_text() == "ran\n"
    assert_exactly_once(site.ended("central", jids[0]), ["door-1"])
