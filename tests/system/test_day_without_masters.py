"""A day on which no master answers: the site enrolls, orders and reports as ever, and hands everything over after it.

The day is accelerated: ``OUTSTATION_DAY_EVENTS`` events happen in it, one a second in the long form (86400).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from itertools import pairwise
from typing import Any

import psutil
import pytest

from device_agent.protocol import limits
from device_agent.protocol.messages import decode_stored
from tests.chaos.load import ask
from tests.peers.system import System, assert_exactly_once

EVENTS = int(os.environ.get("OUTSTATION_DAY_EVENTS", "6000"))
DRAIN_SECONDS = 60.0 + EVENTS / 100

pytestmark = [pytest.mark.system, pytest.mark.timeout(int(240 + EVENTS / 20))]

DEVICES = 20
MASTERS = ("north", "south")
BATCH = 20
HOURS = 24
ALARMS = 3


def fire(system: System, *events: tuple[str, dict[str, Any]]) -> None:
    """Fire events at the site, all of which it has to take."""
    body = {"events": [{"tag": tag, "data": data} for tag, data in events]}
    answered = ask(system.socket_of("lisbon"), "/events", body)
    assert answered.fate == "accepted", answered


def hour(system: System, first: int, last: int) -> None:
    """The events of some time, of one device after the other."""
    for start in range(first, last, BATCH):
        numbers = range(start, min(start + BATCH, last))
        fire(system, *((f"day/cam-{number % DEVICES:05d}", {"n": number, "text": "x" * 100}) for number in numbers))


def resident(system: System) -> int:
    """Memory of the gateway that is in RAM now."""
    found: int = psutil.Process(system.children["lisbon"].process.pid).memory_info().rss
    return found


def told(system: System, master: str, glob: str) -> list[tuple[int, str, int]]:
    """Row, tag and number of the events that a master has, in the order of their commit."""
    with closing(sqlite3.connect(f"file:{system.state_of(master) / 'station.sqlite'}?mode=ro", uri=True)) as store:
        rows = store.execute("SELECT id, tag, data FROM events WHERE tag GLOB ? ORDER BY id", (glob,)).fetchall()
    return [(row, tag, decode_stored(data)["n"]) for row, tag, data in rows]


def handed_over(system: System) -> None:
    """Wait until nothing waits in the spool."""
    system.wait_until(lambda: system.view("lisbon")["spool_pending"] == 0, DRAIN_SECONDS, "the spool is empty")


def test_a_site_works_a_day_without_masters_in_flat_memory_and_hands_everything_over_in_order(system: System) -> None:
    for master in MASTERS:
        system.add_master(master)
    system.add_gateway("lisbon", *MASTERS)
    system.join("lisbon", MASTERS[0])
    devices = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES, "lisbon", MASTERS[0])
    # Caches and what is loaded once: an hour with a master.
    for number in range(20):
        fire(system, *[(f"warm/{number}", {"n": number, "text": "x" * 1000}) for _ in range(100)])
    system.ended("lisbon", system.issue("lisbon", "*", "test.ping"))
    handed_over(system)
    idle = resident(system)

    for master in MASTERS:
        system.kill(master)
    most = 0
    jids: list[str] = []
    for number in range(HOURS):
        hour(system, EVENTS * number // HOURS, EVENTS * (number + 1) // HOURS)
        if number % 6 == 2:
            name = f"door-{number}"
            system.add_agent(name, "lisbon")
            devices.append(name)
            system.until(lambda: system.is_here(name, "lisbon"), f"{name} is let in")  # noqa: B023 - called at once
        if number % 4 == 3:
            jids.append(system.issue("lisbon", "*", "test.echo", number))
            assert_exactly_once(system.ended("lisbon", jids[-1]), devices)
        most = max(most, resident(system))
    fire(system, *((f"alarm/day/{number}", {"n": number}) for number in range(ALARMS)))
    assert system.view("lisbon")["spool_pending"] >= EVENTS

    for master in MASTERS:
        system.restart(master)
    system.wait_until(
        lambda: system.view("lisbon")["uplink"]["state"] == "connected", DRAIN_SECONDS, "a master has the site"
    )
    looks: list[int] = []

    def handed() -> bool:
        looks.append(resident(system))
        return bool(system.view("lisbon")["spool_pending"] == 0)

    system.wait_until(handed, DRAIN_SECONDS, "the spool is empty")
    most = max(most, *looks)
    allowed = int(idle * 1.2) + limits.BATCH_BYTES
    assert most <= allowed, f"{idle:,} bytes idle, {most:,} at most, {allowed:,} allowed"

    address = system.view("lisbon")["uplink"]["master"]
    (master,) = [name for name in MASTERS if system.address(name)["address"] == address]
    for jid in jids:
        system.until(lambda: system.job(master, jid).state == "closed", f"{master} has {jid}")  # noqa: B023 - called at once
        assert system.job(master, jid).counts == system.job("lisbon", jid).counts
    system.until(lambda: system.view(master)["devices"] == len(devices), "the master knows who was let in meanwhile")

    rows = told(system, master, "day/*")
    assert sorted(number for _, _, number in rows) == list(range(EVENTS))
    for device in range(DEVICES):
        numbers = [number for _, tag, number in rows if tag == f"day/cam-{device:05d}"]
        assert all(one < other for one, other in pairwise(numbers))
    alarms = told(system, master, "alarm/day/*")
    assert [number for _, _, number in alarms] == list(range(ALARMS))
    # What was said last and is urgent overtook a day of history.
    before = sum(row < alarms[-1][0] for row, _, _ in rows)
    assert before <= limits.BATCH_ITEMS, f"{before} events came before an alarm"
