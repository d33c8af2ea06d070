"""The story: a site whose master is away works on, forgets nothing, and hands everything over in order, once.

While the master is away the gateway takes jobs of its own, keeps their outcomes and events in its spool, and is killed
in the middle. When the master is back it gets every item in the order in which it was written, and has each once.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DEVICES = 100
JOBS = 8


def start(system: System) -> list[str]:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    devices = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES)
    system.until(lambda: system.view("lisbon")["spool_pending"] == 0, "the spool is empty")
    return devices


def events(system: System, station: str, tag: str) -> list[dict[str, Any]]:
    """The kept events of a station, oldest first."""
    words = ["events", tag, "--history", "10000", "--no-follow", "--json"]
    return system.command(*words, station=station, status=0).json("event")


def test_what_a_site_did_while_its_master_was_away_is_there_once_and_in_order(system: System) -> None:
    devices = start(system)
    system.kill("central")
    before = [system.issue("lisbon", "*", "test.ping") for _ in range(JOBS)]
    for jid in before:
        assert_exactly_once(system.ended("lisbon", jid), devices)
    pending = system.view("lisbon")["spool_pending"]
    assert pending >= JOBS * DEVICES

    # Killed with a full spool, and with jobs open.
    open_ones = [system.issue("lisbon", "*", "test.sleep", 1) for _ in range(2)]
    system.kill("lisbon")
    system.restart("lisbon")
    for jid in open_ones:
        assert_exactly_once(system.ended("lisbon", jid), devices)
    assert system.view("lisbon")["spool_pending"] > pending
    system.kill("lisbon")
    system.restart("lisbon")
    after = [system.issue("lisbon", "*", "test.echo", "after") for _ in range(2)]

    system.restart("central")
    jids = [*before, *open_ones, *after]
    for jid in jids:
        system.until(lambda: system.counts("central", jid) == {"ok": DEVICES}, f"the master has {jid}")  # noqa: B023 - called at once
        assert_exactly_once(system.ended("central", jid), devices)
        assert_executed_once(system.report(), jid, DEVICES)
    system.until(lambda: system.view("lisbon")["spool_pending"] == 0, "the spool is empty again")

    # The order in which the jobs were taken there is the order in which the master heard of them.
    known = [jid for jid in heard(system, "central") if jid in jids]
    assert known == [jid for jid in heard(system, "lisbon") if jid in jids] == jids


def heard(system: System, station: str) -> list[str]:
    """The jobs of a station in the order in which it took them."""
    jobs = system.stations[station].jobs(100)
    return [job.jid for job in sorted(jobs, key=lambda job: job.accepted or 0.0)]


def test_outcomes_arrive_in_the_order_in_which_the_site_wrote_them(system: System) -> None:
    start(system)
    system.kill("central")
    jid = system.issue("lisbon", "*", "test.ping")
    written = [(outcome.id, outcome.ended) for outcome in outcomes_of(system, "lisbon", jid)]
    system.restart("central")
    system.until(lambda: system.counts("central", jid) == {"ok": DEVICES}, "the master has it")
    assert [(outcome.id, outcome.ended) for outcome in outcomes_of(system, "central", jid)] == written


def outcomes_of(system: System, station: str, jid: str) -> list[Any]:
    return system.ended(station, jid).outcomes


def test_what_happened_at_the_site_meanwhile_is_told_once_and_in_order(system: System) -> None:
    start(system)

    def told(station: str) -> list[str]:
        found = [event for event in events(system, station, "salt/*") if "door-1" in str(event["data"])]
        return [json.dumps([event["tag"], event["data"], event["_stamp"]], sort_keys=True) for event in found]

    system.kill("central")
    for number in range(1, 4):
        system.add_agent("door-1", "lisbon")
        system.until(lambda: sum("door-1/start" in line for line in told("lisbon")) == number, "its start was written")  # noqa: B023 - called at once
        system.stop("door-1")
        system.present(DEVICES, "lisbon")
    system.kill("lisbon")
    system.restart("lisbon")
    system.restart("central")
    system.connected("lisbon")
    system.until(lambda: system.view("lisbon")["spool_pending"] == 0, "the spool is empty")
    assert sum("door-1/start" in line for line in told("lisbon")) == 3
    assert told("central") == told("lisbon")


def test_a_master_that_dies_while_it_takes_a_full_spool_has_everything_once(system: System) -> None:
    devices = start(system)
    system.kill("central")
    jids = [system.issue("lisbon", "*", "test.ping") for _ in range(2 * JOBS)]
    for jid in jids:
        system.ended("lisbon", jid)
    for _ in range(3):
        system.restart("central")
        system.until(lambda: system.counts("central", jids[0]), "it has begun to take it")
        system.kill("central")
    system.restart("central")
    for jid in jids:
        system.until(lambda: system.counts("central", jid) == {"ok": DEVICES}, f"the master has {jid}")  # noqa: B023 - called at once
        assert_exactly_once(system.ended("central", jid), devices)
    system.until(lambda: system.view("lisbon")["spool_pending"] == 0, "the spool is empty")


def test_a_master_that_lost_its_whole_memory_gets_what_comes_after(system: System) -> None:
    """A new master with the old key: what the old one confirmed is gone with it, the site works on."""
    devices = start(system)
    system.stop("central")
    for file in (system.folder / "central").glob("station.sqlite*"):
        file.unlink()
    jid = system.issue("lisbon", "*", "test.ping")
    system.ended("lisbon", jid)
    system.restart("central")
    system.join("lisbon")
    system.until(lambda: system.counts("central", jid) == {"ok": DEVICES}, "the master has it")
    assert_exactly_once(system.ended("central", jid), devices)
    system.until(lambda: system.view("central")["devices"] == DEVICES, "the master knows the devices again")
