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
from gateway.rehearsal import free_port
from tests.peers.system import System, assert_exactly_once, assert_executed_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DEVICES = 50
REPLAYS = 20


def start(system: System, devices: int = DEVICES) -> list[str]:
    """The broker stands beside the gateway, so that the devices stay connected while it is away."""
    port = free_port()
    system.add_broker(port)
    system.add_master()
    system.add_gateway("lisbon", "central", broker={"mode": "external", "port": port})
    system.join("lisbon")
    ids = system.add_swarm(devices, "lisbon") if devices else []
    system.present(devices)
    return ids


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


def test_a_delivery_that_is_repeated_is_answered_from_the_journal(system: System) -> None:
    devices = start(system)
    jids = []

    def work() -> None:
        for tgt in ("*", "cam-00001"):
            jid = system.issue("central", tgt, "test.ping")
            system.ended("central", jid)
            jids.append(jid)

    heard = replay(system, work)
    assert any(b"deliver" in payload for _, payload in heard)
    system.until(lambda: system.report()["repeats_answered_from_journal"] >= REPLAYS, "the repeats were answered")
    report = system.report()
    assert_executed_once(report, jids[0], DEVICES)
    assert_executed_once(report, jids[1], 1)
    assert_exactly_once(system.ended("central", jids[0]), devices)
    assert_exactly_once(system.ended("lisbon", jids[0]), devices)
    assert_exactly_once(system.ended("central", jids[1]), ["cam-00001"])


def test_a_job_that_arrives_many_times_while_it_runs_runs_once(system: System) -> None:
    start(system)
    jid = system.issue("central", "*", "test.sleep", 2)
    system.until(lambda: system.job("central", jid).expected == DEVICES, "the master knows who will answer")
    view = system.job("central", jid)
    assert view.issued is not None
    assert view.expires is not None
    job = Job(jid=jid, tgt="*", fun="test.sleep", arg=[2], user="x", issued=view.issued, expires=view.expires)
    frame = encode(Deliver(encode(job), 60.0, bitmap.pack(range(DEVICES))))

    async def repeat() -> None:
        async with aiomqtt.Client("127.0.0.1", system.ports["lisbon"], identifier="repeater") as client:
            for _ in range(REPLAYS):
                await client.publish(topics.group_job("lisbon"), frame, qos=1)

    asyncio.run(repeat())
    system.ended("central", jid)
    assert_executed_once(system.report(), jid, DEVICES)


def test_stations_that_are_killed_again_and_again_do_not_make_it_run_again(system: System) -> None:
    devices = start(system)
    jid = system.issue("central", "*", "test.sleep", 4)
    system.until(lambda: system.job("central", jid).expected == DEVICES, "the master knows who will answer")
    for station in ("lisbon", "central", "lisbon"):
        system.kill(station)
        system.restart(station)
        system.connected("lisbon")
    assert_exactly_once(system.ended("central", jid), devices)
    assert_executed_once(system.report(), jid, DEVICES)


def test_a_connection_that_is_cut_in_the_middle_does_not_make_it_run_again(system: System) -> None:
    devices = start(system)
    jid = system.issue("central", "*", "test.sleep", 2)
    system.until(lambda: system.waiting("lisbon", jid) == {"running": DEVICES}, "every device runs it")
    system.kill("broker")
    system.add_broker(system.ports["lisbon"])
    assert_exactly_once(system.ended("central", jid), devices)
    assert_executed_once(system.report(), jid, DEVICES)


def test_an_agent_that_was_killed_in_the_middle_does_not_know_and_does_not_try_again(system: System) -> None:
    start(system, devices=0)
    system.add_agent("door-1", "lisbon")
    system.present(1)
    marks = system.folder / "marks"
    command = f"echo ran >> {marks}; exec sleep 60"
    jid = system.issue("central", "door-1", "cmd.run", command)
    system.until(marks.exists, "the command runs")
    system.kill("door-1")
    system.add_agent("door-1", "lisbon")
    (outcome,) = system.ended("central", jid).outcomes
    assert outcome.outcome == "unknown"
    assert outcome.why
    assert marks.read_text() == "ran\n"

    # It works on, and remembers through another restart.
    again = system.issue("central", "door-1", "test.ping")
    assert_exactly_once(system.ended("central", again), ["door-1"])
    system.stop("door-1")
    system.present(0)
    system.add_agent("door-1", "lisbon")
    system.present(1)
    assert marks.read_text() == "ran\n"


def test_a_job_that_was_answered_before_a_kill_of_the_agent_is_answered_from_its_file(system: System) -> None:
    start(system, devices=0)
    system.add_agent("door-1", "lisbon")
    system.present(1)
    marks = system.folder / "marks"
    jids = []

    def work() -> None:
        jid = system.issue("central", "door-1", "cmd.run", f"echo ran >> {marks}")
        system.ended("central", jid)
        jids.append(jid)
        system.kill("door-1")
        system.present(0)
        system.add_agent("door-1", "lisbon")
        system.present(1)

    replay(system, work)
    assert_exactly_once(system.ended("central", system.issue("central", "door-1", "test.ping")), ["door-1"])
    assert marks.read_text() == "ran\n"
    assert_exactly_once(system.ended("central", jids[0]), ["door-1"])
