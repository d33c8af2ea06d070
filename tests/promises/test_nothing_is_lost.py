"""The story: a site whose master is away works on, forgets nothing, and hands everything over in order, once.

While the master is away the gateway takes jobs of its own, keeps their outcomes and events in its spool, and is killed
in the middle. When the master is back it gets every item in the order in which it was written, and has each once.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 50
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
JOBS = 8


def events(system: System, station: str, tag: str) -> list[dict[str, Any]]:
    """The kept events of a station, oldest first."""
    words = ["events", tag, "--history", "10000", "--no-follow", "--json"]
    return system.command(*words, station=station, status=0).json("event")


def test_what_a_site_did_while_its_master_was_away_is_there_once_and_in_order(site: System) -> None:
    site.kill("central")
    before = [site.issue("lisbon", "cam-*", "test.ping") for _ in range(JOBS)]
    for jid in before:
        assert_exactly_once(site.ended("lisbon", jid), IDS)
    pending = site.view("lisbon")["spool_pending"]
    assert pending >= JOBS * DEVICES

    # Killed with a full spool, and with jobs open.
    open_ones = [site.issue("lisbon", "cam-*", "test.sleep", 1) for _ in range(2)]
    site.kill("lisbon")
    site.restart("lisbon")
    for jid in open_ones:
        assert_exactly_once(site.ended("lisbon", jid), IDS)
    assert site.view("lisbon")["spool_pending"] > pending
    site.kill("lisbon")
    site.restart("lisbon")
    after = [site.issue("lisbon", "cam-*", "test.echo", "after") for _ in range(2)]

    site.restart("central")
    jids = [*before, *open_ones, *after]
    for jid in jids:
        site.until(lambda: site.counts("central", jid) == {"ok": DEVICES}, f"the master has {jid}")  # noqa: B023 - called at once
        assert_exactly_once(site.ended("central", jid), IDS)
        assert_executed_once(site.report(), jid, DEVICES)
    site.until(lambda: site.view("lisbon")["spool_pending"] == 0, "the spool is empty again")

    # The order in which the jobs were taken there is the order in which the master heard of them.
    accepted = [site.job("central", jid).accepted or 0.0 for jid in jids]
    assert accepted == sorted(accepted)


def test_outcomes_arrive_in_the_order_in_which_the_site_wrote_them(site: System) -> None:
    site.kill("central")
    jid = site.issue("lisbon", "cam-*", "test.ping")
    written = [(outcome.id, outcome.ended) for outcome in outcomes_of(site, "lisbon", jid)]
    site.restart("central")
    site.until(lambda: site.counts("central", jid) == {"ok": DEVICES}, "the master has it")
    assert [(outcome.id, outcome.ended) for outcome in outcomes_of(site, "central", jid)] == written


def outcomes_of(system: System, station: str, jid: str) -> list[Any]:
    return system.ended(station, jid).outcomes


def test_what_happened_at_the_site_meanwhile_is_told_once_and_in_order(site: System) -> None:

    def told(station: str) -> list[str]:
        found = [event for event in events(site, station, "salt/*") if "door-1" in str(event["data"])]
        return [json.dumps([event["tag"], event["data"], event["_stamp"]], sort_keys=True) for event in found]

    site.kill("central")
    for number in range(1, 4):
        site.add_agent("door-1", "lisbon")
        site.until(lambda: sum("door-1/start" in line for line in told("lisbon")) == number, "its start was written")  # noqa: B023 - called at once
        site.stop("door-1")
        site.until(lambda: not site.is_here("door-1", "lisbon"), "it has left")
    site.kill("lisbon")
    site.restart("lisbon")
    site.restart("central")
    site.connected("lisbon")
    site.until(lambda: site.view("lisbon")["spool_pending"] == 0, "the spool is empty")
    assert sum("door-1/start" in line for line in told("lisbon")) == 3
    assert told("central") == told("lisbon")


def test_a_master_that_dies_while_it_takes_a_full_spool_has_everything_once(site: System) -> None:
    site.kill("central")
    jids = [site.issue("lisbon", "cam-*", "test.ping") for _ in range(2 * JOBS)]
    for jid in jids:
        site.ended("lisbon", jid)
    for _ in range(3):
        site.restart("central")
        site.until(lambda: site.counts("central", jids[0]), "it has begun to take it")
        site.kill("central")
    site.restart("central")
    for jid in jids:
        site.until(lambda: site.counts("central", jid) == {"ok": DEVICES}, f"the master has {jid}")  # noqa: B023 - called at once
        assert_exactly_once(site.ended("central", jid), IDS)
    site.until(lambda: site.view("lisbon")["spool_pending"] == 0, "the spool is empty")


def test_a_master_that_lost_its_whole_memory_gets_what_comes_after(system: System) -> None:
    """A new master with the old keys: what the old one confirmed is gone with it, the site works on.

    Nobody has to accept the site again: it brings the certificate which this master signed.
    """
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    devices = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES)
    system.stop("central")
    for file in (system.folder / "central").glob("station.sqlite*"):
        file.unlink()
    jid = system.issue("lisbon", "*", "test.ping")
    system.ended("lisbon", jid)
    system.restart("central")
    system.connected("lisbon")
    assert [(key.site, key.state) for key in system.stations["central"].keys().keys] == [("lisbon", "accepted")]
    system.until(lambda: system.counts("central", jid) == {"ok": DEVICES}, "the master has it")
    assert_exactly_once(system.ended("central", jid), devices)
    system.until(lambda: system.view("central")["devices"] == DEVICES, "the master knows the devices again")
    assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), devices)
