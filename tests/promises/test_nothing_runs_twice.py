"""The story: however often a job is delivered, each device runs it once.

Deliveries are repeated: to devices that said nothing, after every restart of a station or a broker, and by whoever
replays what was on the wire. Each device counts its own executions for each jid, and a repeat is answered from its
journal. A device that died in the middle of a job says that it does not know, and does not try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiomqtt
import pytest

from device_agent.protocol import bitmap, topics
from device_agent.protocol.messages import Deliver, Job, encode
from tests.peers.system import System, assert_exactly_once, assert_executed_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DEVICES = 50
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
REPLAYS = 20


def replay(system: System, while_it_listens: Callable[[], None]) -> list[tuple[str, bytes]]:
    """Record what is said to devices during a call, then say it all again, many times."""

    async def listen_and_repeat() -> list[tuple[str, bytes]]:
        heard: list[tuple[str, bytes]] = []
        async with aiomqtt.Client("127.0.0.1", system.ports["lisbon"], identifier="recorder") as client:
            await client.subscribe("os/lisbon/#")
            await asyncio.to_thread(while_it_listens)
            await client.publish("os/lisbon/d/end/job", b"end", qos=1)
            async for message in client.messages:
                if message.topic.value == "os/lisbon/d/end/job":
                    break
                if not message.topic.matches("os/lisbon/d/+/up/#"):
                    assert isinstance(message.payload, bytes)
                    heard.append((message.topic.value, message.payload))
            for _ in range(REPLAYS):
                for topic, payload in heard:
                    await client.publish(topic, payload, qos=1)
        return heard

    return asyncio.run(listen_and_repeat())


def test_a_delivery_that_is_repeated_is_answered_from_the_journal(beside_a_broker: System) -> None:
    site = beside_a_broker
    jids = []

    def work() -> None:
        for tgt in ("cam-*", "cam-00001"):
            jid = site.issue("central", tgt, "test.ping")
            site.ended("central", jid)
            jids.append(jid)

    heard = replay(site, work)
    assert any(b"deliver" in payload for _, payload in heard)
    site.until(lambda: site.report()["repeats_answered_from_journal"] >= REPLAYS, "the repeats were answered")
    report = site.report()
    assert_executed_once(report, jids[0], DEVICES)
    assert_executed_once(report, jids[1], 1)
    assert_exactly_once(site.ended("central", jids[0]), IDS)
    assert_exactly_once(site.ended("lisbon", jids[0]), IDS)
    assert_exactly_once(site.ended("central", jids[1]), ["cam-00001"])


def test_a_job_that_arrives_many_times_while_it_runs_runs_once(beside_a_broker: System) -> None:
    site = beside_a_broker
    jid = site.issue("central", "cam-*", "test.sleep", 2)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    view = site.job("central", jid)
    assert view.issued is not None
    assert view.expires is not None
    job = Job(jid=jid, tgt="cam-*", fun="test.sleep", arg=[2], user="x", issued=view.issued, expires=view.expires)
    frame = encode(Deliver(encode(job), 60.0, bitmap.pack(range(DEVICES))))

    async def repeat() -> None:
        async with aiomqtt.Client("127.0.0.1", site.ports["lisbon"], identifier="repeater") as client:
            for _ in range(REPLAYS):
                await client.publish(topics.group_job("lisbon"), frame, qos=1)

    asyncio.run(repeat())
    site.ended("central", jid)
    assert_executed_once(site.report(), jid, DEVICES)


def test_a_connection_that_is_cut_in_the_middle_does_not_make_it_run_again(beside_a_broker: System) -> None:
    site = beside_a_broker
    jid = site.issue("central", "cam-*", "test.sleep", 2)
    site.until(lambda: site.waiting("lisbon", jid) == {"running": DEVICES}, "every device runs it")
    site.kill("broker")
    site.add_broker(site.ports["lisbon"])
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
