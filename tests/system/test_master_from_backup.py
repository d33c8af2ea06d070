"""A master that was put back from an old copy of its state: its open jobs end as they ended, and nothing runs again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.errors import NotFound
from tests.peers.system import System, assert_exactly_once, assert_executed_once, one_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 20
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
ODD = "cam-.*[13579]$"


@pytest.fixture
def site() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system


def copy_of_the_master(site: System) -> Path:
    """Its state folder as it is now; it goes on afterwards."""
    site.stop("central")
    kept = site.folder / "backup"
    shutil.copytree(site.state_of("central"), kept)
    site.restart("central")
    return kept


def put_back(site: System, kept: Path) -> None:
    """What happened since the copy never happened, as far as the master knows."""
    site.stop("central")
    shutil.rmtree(site.state_of("central"))
    shutil.copytree(kept, site.state_of("central"))
    site.restart("central")


def test_every_job_that_was_open_in_the_copy_ends_as_it_ended(site: System) -> None:
    busy = site.occupy("lisbon", ODD, DEVICES // 2, 18, tgt_type="pcre")
    half = site.issue("central", "*", "test.ping", expires_seconds=600)
    site.until(lambda: site.job("central", half).counts == {"ok": DEVICES // 2}, "half of the outcomes")
    # Its expiry is over when the copy is put back: a master that did not ask would call the site dark.
    short = site.issue("central", "cam-0000[02468]", "test.sleep", 2, expires_seconds=12)
    site.until(lambda: site.job("central", short).expected == 5, "the master knows who will answer")
    kept = copy_of_the_master(site)
    ended = {jid: site.ended("central", jid).by_device() for jid in (half, short)}
    for jid in busy:
        site.ended("lisbon", jid)
    after = site.issue("central", "*", "test.ping")
    assert_exactly_once(site.ended("central", after), IDS)
    site.until(lambda: site.view("lisbon")["spool_pending"] == 0, "the master has confirmed everything")
    put_back(site, kept)
    for jid, outcomes in ended.items():
        assert site.ended("central", jid).by_device() == outcomes
    assert_exactly_once(site.ended("central", half), IDS)
    with pytest.raises(NotFound):
        site.job("central", after)
    # It goes on as if nothing had been.
    again = site.issue("central", "*", "test.ping")
    assert_exactly_once(site.ended("central", again), IDS)
    report = site.report()
    for jid in (half, after, again):
        assert_executed_once(report, jid, DEVICES)
    assert_executed_once(report, short, 5)
    # A gateway that had not noticed the restart yet is told to begin with a hello; nothing else is refused.
    assert {reason for link, reason in site.refusals("central") if link == "uplink"} <= {"no_hello"}


def test_a_job_that_had_not_reached_the_site_in_the_copy_is_not_run_again(site: System) -> None:
    site.stop("lisbon")
    site.until(lambda: not site.site_state("lisbon"), "the site is dark")
    waits = site.issue("central", "*", "test.ping", late="run", expires_seconds=600)
    short = site.issue("central", "*", "test.ping", late="run", expires_seconds=20)
    kept = copy_of_the_master(site)
    site.restart("lisbon")
    site.present(DEVICES)
    # In a machine that is slow today the short one may have expired before its devices were back: so it ended, then.
    ended = {jid: site.ended("central", jid).by_device() for jid in (waits, short)}
    executed = site.report()["executed"]
    site.until(lambda: site.view("lisbon")["spool_pending"] == 0, "the master has confirmed everything")
    put_back(site, kept)
    for jid, outcomes in ended.items():
        assert site.ended("central", jid).by_device() == outcomes
    assert_exactly_once(site.ended("central", waits), IDS)
    assert site.report()["executed"] == executed


def test_a_job_that_still_runs_when_the_copy_is_put_back_ends_once(site: System) -> None:
    busy = site.occupy("lisbon", "cam-.*[02468]$", DEVICES // 2, 12, tgt_type="pcre")
    busy += site.occupy("lisbon", ODD, DEVICES // 2, 30, tgt_type="pcre")
    jid = site.issue("central", "*", "test.ping", expires_seconds=600)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    kept = copy_of_the_master(site)
    site.until(lambda: site.job("central", jid).counts == {"ok": DEVICES // 2}, "half of the outcomes")
    site.connected("lisbon")
    put_back(site, kept)
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)
    for other in busy:
        site.ended("lisbon", other)
