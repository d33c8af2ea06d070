"""A site that is away: its devices are ``site_dark`` at the expiry, or the job waits until it is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 20
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    """The broker stands beside the gateway, so that the devices stay connected while it is away."""
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", broker=system.add_broker())
        system.join("lisbon")
        system.add_swarm(DEVICES, "lisbon")
        yield system


@pytest.fixture
def site(shared: System) -> System:
    """The site with all its devices."""
    if "lisbon" not in shared.children:
        shared.restart("lisbon")
    shared.present(DEVICES)
    return shared


@pytest.fixture
def dark(site: System) -> System:
    """The site was there, and is not now."""
    site.stop("lisbon")
    site.until(lambda: not site.site_state("lisbon"), "the site is dark")
    return site


def test_a_job_that_does_not_wait_ends_as_site_dark_for_each_known_device(dark: System) -> None:
    finished = dark.command("run", "*", "test.ping", "--json", "--late", "drop", "--expires", "1s", status=1)
    outcomes = finished.json("outcome")
    assert sorted(outcome["id"] for outcome in outcomes) == IDS
    assert {(outcome["outcome"], outcome["site"], outcome["executions"]) for outcome in outcomes} == {
        ("site_dark", "lisbon", 0)
    }
    assert all(outcome["seen"] is not None and outcome["why"] for outcome in outcomes)
    (summary,) = finished.json("summary")
    assert (summary["expected"], summary["counts"]) == (DEVICES, {"site_dark": DEVICES})
    # Only those that are meant are said to be dark.
    finished = dark.command("run", "-G", "number:7", "test.ping", "--json", "--expires", "1s", status=1)
    assert [(each["id"], each["outcome"]) for each in finished.json("outcome")] == [("cam-00007", "site_dark")]
    dark.restart("lisbon")
    dark.connected("lisbon")
    # What has ended does not begin again.
    later = dark.issue("central", "*", "test.ping")
    assert_exactly_once(dark.ended("central", later), IDS)
    assert summary["jid"] not in dark.report()["executed"]


def test_a_job_that_waits_runs_when_the_site_is_back(dark: System) -> None:
    jid = dark.issue("central", "*", "test.ping", late="run", expires_seconds=600)
    assert dark.job("central", jid).sites[0].state == "dark"
    assert dark.job("central", jid).counts == {}
    dark.restart("lisbon")
    assert_exactly_once(dark.ended("central", jid), IDS)
    assert_executed_once(dark.report(), jid, DEVICES)


def test_a_job_that_waits_survives_a_kill_of_the_master_meanwhile(dark: System) -> None:
    jid = dark.issue("central", "*", "test.ping", late="run", expires_seconds=600)
    dark.kill("central")
    dark.restart("central")
    dark.restart("lisbon")
    assert_exactly_once(dark.ended("central", jid), IDS)
    assert_executed_once(dark.report(), jid, DEVICES)


def test_a_job_that_waits_in_vain_is_expired(dark: System) -> None:
    finished = dark.command("run", "*", "test.ping", "--json", "--late", "run", "--expires", "1s", status=1)
    (summary,) = finished.json("summary")
    assert summary["counts"] == {"expired": DEVICES}
    assert {outcome["outcome"] for outcome in finished.json("outcome")} == {"expired"}
    dark.restart("lisbon")
    dark.present(DEVICES)
    assert summary["jid"] not in dark.report()["executed"]


def test_a_site_that_was_killed_is_dark_as_well(site: System) -> None:
    site.kill("lisbon")
    finished = site.command("run", "*", "test.ping", "--json", "--expires", "1s", status=1)
    (summary,) = finished.json("summary")
    assert (summary["expected"], summary["counts"]) == (DEVICES, {"site_dark": DEVICES})


def test_a_device_that_is_away_gets_a_job_that_waits_when_it_is_back(system: System) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    for door in ("door-1", "door-2"):
        system.add_agent(door, "lisbon")
    system.present(2)
    system.stop("door-1")
    system.present(1)
    jid = system.issue("central", "*", "test.ping", late="run", expires_seconds=600)
    system.until(lambda: system.job("central", jid).counts == {"ok": 1}, "the one that is here has answered")
    assert system.job("lisbon", jid).waiting == {"queued": 1}
    system.add_agent("door-1", "lisbon")
    assert_exactly_once(system.ended("central", jid), ["door-1", "door-2"])
