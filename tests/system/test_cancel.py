"""A cancelled job does not start where it has not started, wherever it waits; what runs goes on to its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase

import pytest

from tests.peers.system import System, assert_exactly_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 10
PREFIXES = iter(ascii_lowercase)


@dataclass(frozen=True)
class Place:
    """The system, and the devices of one test: those of the one before may still be asleep, or have forgotten."""

    system: System
    devices: list[str]

    @property
    def target(self) -> str:
        return f"{self.devices[0][:-5]}*"


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    """The broker stands beside the gateway, so that the devices stay connected while it is away."""
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", broker=system.add_broker())
        system.join("lisbon")
        yield system


@pytest.fixture
def place(shared: System) -> Iterator[Place]:
    for station in ("central", "lisbon"):
        if station not in shared.children:
            shared.restart(station)
    shared.connected("lisbon")
    prefix = f"{next(PREFIXES)}-"
    devices = shared.add_swarm(DEVICES, "lisbon", prefix=prefix)
    shared.present(DEVICES)
    yield Place(shared, devices)
    assert shared.stop("swarm") == 0
    if "lisbon" in shared.children:
        shared.present(0)


def test_devices_that_are_busy_do_not_start_it_and_finish_what_they_run(place: Place) -> None:
    site = place.system
    busy = site.occupy("lisbon", place.target, DEVICES, 15)
    jid = site.issue("central", place.target, "test.ping")
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    finished = site.command("jobs", "cancel", jid, status=0)
    assert jid in finished.out + finished.error
    ended = site.ended("central", jid)
    assert_exactly_once(ended, place.devices, "cancelled")
    assert ended.job.cancelled
    for other in busy:
        assert_exactly_once(site.ended("central", other), place.devices)
    assert jid not in site.report()["executed"]


def test_what_runs_already_goes_on_to_its_end(place: Place) -> None:
    site = place.system
    jid = site.issue("central", place.target, "test.sleep", 12)
    site.until(lambda: site.waiting("lisbon", jid) == {"running": DEVICES}, "every device runs it")
    site.stations["central"].cancel(jid)
    assert_exactly_once(site.ended("central", jid), place.devices)


def test_a_watch_of_a_cancelled_job_ends_with_status_1(place: Place) -> None:
    site = place.system
    site.occupy("lisbon", place.target, DEVICES, 60)
    jid = site.issue("central", place.target, "test.ping")
    site.stations["central"].cancel(jid)
    finished = site.command("jobs", "watch", jid, "--json", status=1)
    (summary,) = finished.json("summary")
    assert (summary["counts"], summary["cancelled"]) == ({"cancelled": DEVICES}, True)


def test_a_job_that_has_ended_cannot_be_cancelled(place: Place) -> None:
    site = place.system
    jid = site.issue("central", place.target, "test.ping")
    site.ended("central", jid)
    refused = site.command("jobs", "cancel", jid)
    assert refused.status == 2
    assert "has ended" in refused.error
    assert_exactly_once(site.ended("central", jid), place.devices)


def test_the_cancel_of_a_job_that_a_dark_site_has_not_seen_needs_no_site(place: Place) -> None:
    site = place.system
    site.stop("lisbon")
    site.until(lambda: not site.site_state("lisbon"), "the site is dark")
    jid = site.issue("central", place.target, "test.ping", late="run", expires_seconds=3600)
    site.stations["central"].cancel(jid)
    assert_exactly_once(site.ended("central", jid), place.devices, "cancelled")
    site.restart("lisbon")
    site.present(DEVICES)
    assert jid not in site.report()["executed"]


def test_a_cancel_in_the_dark_reaches_the_devices_when_the_site_is_back(place: Place) -> None:
    site = place.system
    site.occupy("lisbon", place.target, DEVICES, 60)
    jid = site.issue("central", place.target, "test.ping", expires_seconds=3600)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    site.stop("lisbon")
    site.until(lambda: not site.site_state("lisbon"), "the site is dark")
    assert site.stations["central"].cancel(jid).state == "open"
    site.restart("lisbon")
    assert_exactly_once(site.ended("central", jid), place.devices, "cancelled")
    assert jid not in site.report()["executed"]


def test_a_cancel_survives_a_kill_of_the_master_and_of_the_gateway(place: Place) -> None:
    site = place.system
    site.occupy("lisbon", place.target, DEVICES, 60)
    jid = site.issue("central", place.target, "test.ping", expires_seconds=3600)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    site.kill("lisbon")
    site.stations["central"].cancel(jid)
    site.kill("central")
    site.restart("central")
    site.restart("lisbon")
    assert_exactly_once(site.ended("central", jid), place.devices, "cancelled")
    assert jid not in site.report()["executed"]
