"""Jobs across an outage: of the line, of the master, and of one master while another takes the answers."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 20
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
ODD = "cam-.*[13579]$"


@pytest.fixture
def one(system: System) -> System:
    """The broker stands beside the gateway, so that the devices stay connected while it is away."""
    system.add_master()
    system.add_gateway("lisbon", "central", broker=system.add_broker())
    system.join("lisbon")
    system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES)
    return system


@pytest.fixture
def two() -> Iterator[System]:
    """A gateway with two masters that both have accepted it."""
    with whole_system() as system:
        system.add_master("north")
        system.add_master("south")
        system.add_gateway("lisbon", "north", "south")
        system.join("lisbon", "north")
        system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES, "north", "lisbon")
        yield system


def go_dark(system: System) -> None:
    system.stop("lisbon")
    system.until(lambda: not system.site_state("lisbon"), "the site is dark")


def uplink_state(system: System) -> str:
    return str(system.view("lisbon")["uplink"]["state"])


def test_a_job_that_has_time_left_runs_when_the_site_is_back_whether_it_waits_or_not(one: System) -> None:
    go_dark(one)
    jids = [
        one.issue("central", "*", "test.ping", late="drop", expires_seconds=600),
        one.issue("central", "*", "test.ping", late="run", expires_seconds=600),
    ]
    one.restart("lisbon")
    for jid in jids:
        assert_exactly_once(one.ended("central", jid), IDS)
        assert_executed_once(one.report(), jid, DEVICES)


def test_a_job_half_done_when_the_line_broke_ends_once(one: System) -> None:
    one.occupy("lisbon", ODD, DEVICES // 2, 12, tgt_type="pcre")
    jid = one.issue("central", "*", "test.ping", expires_seconds=600)
    one.until(lambda: one.job("central", jid).counts == {"ok": DEVICES // 2}, "half of the outcomes")
    one.children["central"].process.send_signal(signal.SIGSTOP)
    one.until(lambda: uplink_state(one) != "connected", "the line is given up")
    one.ended("lisbon", jid)
    one.children["central"].process.send_signal(signal.SIGCONT)
    assert_exactly_once(one.ended("central", jid), IDS)
    assert_executed_once(one.report(), jid, DEVICES)


def test_a_cancel_given_after_the_masters_restart_and_before_the_site_is_there_reaches_it(one: System) -> None:
    one.occupy("lisbon", "*", DEVICES, 60)
    jid = one.issue("central", "*", "test.ping", expires_seconds=3600)
    one.until(lambda: one.job("central", jid).expected == DEVICES, "the master knows who will answer")
    one.stop("lisbon")
    one.kill("central")
    one.restart("central")
    assert one.stations["central"].cancel(jid).state == "open"
    one.restart("lisbon")
    assert_exactly_once(one.ended("central", jid), IDS, "cancelled")
    assert jid not in one.report()["executed"]


def test_a_job_whose_master_died_ends_there_with_the_outcomes_that_another_took(two: System) -> None:
    two.occupy("lisbon", ODD, DEVICES // 2, 15, tgt_type="pcre")
    jid = two.issue("north", "*", "test.ping", expires_seconds=600)
    two.until(lambda: two.job("north", jid).counts == {"ok": DEVICES // 2}, "half of the outcomes are in the north")
    two.kill("north")
    # The south was never told of this job, and takes what becomes of it all the same.
    taken = two.ended("lisbon", jid)
    assert_exactly_once(taken, IDS)
    two.until(lambda: two.counts("south", jid) == {"ok": DEVICES}, "the south has all outcomes")
    assert two.ended("south", jid).words() == taken.words()
    two.until(lambda: two.view("lisbon")["spool_pending"] == 0, "the south has confirmed everything")
    # It is there again, and the one that issued the job, whoever is sent the spool.
    two.restart("north")
    assert two.ended("north", jid).words() == taken.words()
    assert_executed_once(two.report(), jid, DEVICES)


def test_a_job_given_to_a_master_that_stands_by_ends_there_as_it_runs(two: System) -> None:
    two.connected("lisbon", "south")
    two.occupy("lisbon", ODD, DEVICES // 2, 12, tgt_type="pcre")
    jid = two.issue("south", "*", "test.ping", expires_seconds=600)
    two.until(lambda: two.counts("south", jid) == {"ok": DEVICES // 2}, "half of the outcomes are in the south")
    assert_exactly_once(two.ended("south", jid), IDS)
    # The one that takes the returns knows the job as well.
    two.until(lambda: two.counts("north", jid) == {"ok": DEVICES}, "the north has all outcomes")
    assert_exactly_once(two.ended("north", jid), IDS)
    assert_executed_once(two.report(), jid, DEVICES)


def test_a_cancel_by_the_master_that_issued_a_job_counts_after_it_was_dead(two: System) -> None:
    two.occupy("lisbon", "*", DEVICES, 60)
    jid = two.issue("north", "*", "test.ping", expires_seconds=3600)
    two.until(lambda: two.job("north", jid).expected == DEVICES, "the north knows who will answer")
    two.kill("north")
    two.connected("lisbon", "south")
    two.restart("north")
    assert two.stations["north"].cancel(jid).state == "open"
    assert_exactly_once(two.ended("north", jid), IDS, "cancelled")
    assert jid not in two.report()["executed"]
