"""A cancelled job does not start where it has not started, wherever it waits; what runs goes on to its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.rehearsal import free_port
from tests.peers.system import System, assert_exactly_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DEVICES = 10
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    """The broker stands beside the gateway, so that the devices stay connected while it is away."""
    with whole_system() as system:
        port = free_port()
        system.add_broker(port)
        system.add_master()
        system.add_gateway("lisbon", "central", broker={"mode": "external", "port": port})
        system.join("lisbon")
        yield system


@pytest.fixture
def site(shared: System) -> Iterator[System]:
    """With a swarm of its own for each test: the devices of the one before may still be asleep."""
    if "lisbon" not in shared.children:
        shared.restart("lisbon")
        shared.connected("lisbon")
    shared.add_swarm(DEVICES, "lisbon")
    shared.present(DEVICES)
    yield shared
    shared.stop("swarm")
    if "lisbon" in shared.children:
        shared.present(0)


def test_devices_that_are_busy_do_not_start_it_and_finish_what_they_run(site: System) -> None:
    busy = site.occupy("lisbon", "*", DEVICES, 3)
    jid = site.issue("central", "*", "test.ping")
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    finished = site.command("jobs", "cancel", jid, status=0)
    assert jid in finished.out + finished.error
    ended = site.ended("central", jid)
    assert_exactly_once(ended, IDS, "cancelled")
    assert ended.job.cancelled
    for other in busy:
        assert_exactly_once(site.ended("central", other), IDS)
    assert jid not in site.report()["executed"]


def test_what_runs_already_goes_on_to_its_end(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 2)
    site.until(lambda: site.job("lisbon", jid).waiting == {"running": DEVICES}, "every device runs it")
    site.stations["central"].cancel(jid)
    assert_exactly_once(site.ended("central", jid), IDS)


def test_a_watch_of_a_cancelled_job_ends_with_status_1(site: System) -> None:
    site.occupy("lisbon", "*", DEVICES, 30)
    jid = site.issue("central", "*", "test.ping")
    site.stations["central"].cancel(jid)
    finished = site.command("jobs", "watch", jid, "--json", status=1)
    (summary,) = finished.json("summary")
    assert (summary["counts"], summary["cancelled"]) == ({"cancelled": DEVICES}, True)


def test_a_job_that_has_ended_cannot_be_cancelled(site: System) -> None:
    jid = site.issue("central", "*", "test.ping")
    site.ended("central", jid)
    refused = site.command("jobs", "cancel", jid)
    assert refused.status == 2
    assert "has ended" in refused.error
    assert_exactly_once(site.ended("central", jid), IDS)


def test_the_cancel_of_a_job_that_a_dark_site_has_not_seen_needs_no_site(site: System) -> None:
    site.stop("lisbon")
    site.until(lambda: not site.site_state("lisbon"), "the site is dark")
    jid = site.issue("central", "*", "test.ping", late="run", expires_seconds=3600)
    site.stations["central"].cancel(jid)
    assert_exactly_once(site.ended("central", jid), IDS, "cancelled")
    site.restart("lisbon")
    site.present(DEVICES)
    assert jid not in site.report()["executed"]


def test_a_cancel_in_the_dark_reaches_the_devices_when_the_site_is_back(site: System) -> None:
    site.occupy("lisbon", "*", DEVICES, 40)
    jid = site.issue("central", "*", "test.ping", expires_seconds=3600)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    site.stop("lisbon")
    site.until(lambda: not site.site_state("lisbon"), "the site is dark")
    assert site.stations["central"].cancel(jid).state == "open"
    site.restart("lisbon")
    assert_exactly_once(site.ended("central", jid), IDS, "cancelled")
    assert jid not in site.report()["executed"]


def test_a_cancel_survives_a_kill_of_the_master_and_of_the_gateway(site: System) -> None:
    site.occupy("lisbon", "*", DEVICES, 40)
    jid = site.issue("central", "*", "test.ping", expires_seconds=3600)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    site.kill("lisbon")
    site.stations["central"].cancel(jid)
    site.kill("central")
    site.restart("central")
    site.restart("lisbon")
    assert_exactly_once(site.ended("central", jid), IDS, "cancelled")
    assert jid not in site.report()["executed"]
