"""SIGKILL of the master at any moment of a job: it takes the job up again, and has each outcome once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from device_agent.errors import NotRunning
from gateway.cli.views import JobSeen
from tests.peers.system import System, assert_exactly_once, assert_executed_once, one_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 200
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system


@pytest.fixture
def site(shared: System) -> System:
    if "central" not in shared.children:
        shared.restart("central")
    shared.connected("lisbon")
    shared.present(DEVICES)
    return shared


def kill_and_start_again(site: System) -> None:
    site.kill("central")
    site.restart("central")


def assert_it_ends_once(site: System, jid: str) -> None:
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)
    site.until(lambda: site.view("lisbon")["spool_pending"] == 0, "the master has confirmed everything")


def test_killed_right_after_it_said_that_it_has_the_job(site: System) -> None:
    jid = site.issue("central", "*", "test.ping")
    kill_and_start_again(site)
    assert_it_ends_once(site, jid)


def test_killed_while_every_device_runs_the_job(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 2)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    kill_and_start_again(site)
    assert_it_ends_once(site, jid)


def test_killed_when_it_has_half_of_the_outcomes_and_back_when_the_site_has_all(site: System) -> None:
    site.occupy("lisbon", "cam-.*[13579]$", DEVICES // 2, 10, tgt_type="pcre")
    jid = site.issue("central", "*", "test.ping")
    site.until(lambda: site.job("central", jid).counts == {"ok": DEVICES // 2}, "half of the outcomes")
    site.kill("central")
    assert_exactly_once(site.ended("lisbon", jid), IDS)
    assert site.view("lisbon")["spool_pending"] > 0
    site.restart("central")
    assert_it_ends_once(site, jid)


def test_killed_as_soon_as_the_first_outcome_is_there(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 1)
    site.until(lambda: site.counts("central", jid), "the first outcome is at the master")
    kill_and_start_again(site)
    assert_it_ends_once(site, jid)


def test_killed_together_with_the_gateway(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 2)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    site.kill("central")
    site.kill("lisbon")
    site.restart("lisbon")
    site.restart("central")
    assert_it_ends_once(site, jid)


def test_a_job_can_be_watched_again_when_its_master_is_back(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 2)
    watch = site.stations["central"].watch(jid)
    assert isinstance(next(watch), JobSeen)
    site.kill("central")
    with pytest.raises(NotRunning):
        list(watch)
    site.restart("central")
    finished = site.command("jobs", "watch", jid, "--json", status=0)
    assert sorted(outcome["id"] for outcome in finished.json("outcome")) == IDS
