"""SIGKILL of the gateway at any moment of a job: it ends with one outcome per device, and ran once on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once, one_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 1000
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
ODD = {"tgt": "cam-.*[13579]$", "tgt_type": "pcre"}


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system


@pytest.fixture
def site(shared: System) -> System:
    if "lisbon" not in shared.children:
        shared.restart("lisbon")
    shared.present(DEVICES)
    return shared


def kill_and_start_again(site: System) -> None:
    site.kill("lisbon")
    site.restart("lisbon")


def assert_it_ends_once(site: System, jid: str) -> None:
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_exactly_once(site.ended("lisbon", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)


def test_killed_right_after_the_job_was_given_to_the_master(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 1)
    kill_and_start_again(site)
    assert_it_ends_once(site, jid)


def test_killed_while_every_device_runs_the_job(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 8)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    assert site.job("central", jid).counts == {}
    kill_and_start_again(site)
    assert_it_ends_once(site, jid)


def test_killed_when_half_of_the_outcomes_are_at_the_master_and_half_of_the_devices_have_not_started(
    site: System,
) -> None:
    busy = site.occupy("lisbon", ODD["tgt"], DEVICES // 2, 15, tgt_type=ODD["tgt_type"])
    jid = site.issue("central", "*", "test.ping")
    site.until(lambda: site.job("central", jid).counts == {"ok": DEVICES // 2}, "half of the outcomes")
    kill_and_start_again(site)
    assert_it_ends_once(site, jid)
    report = site.report()
    for other in busy:
        # Issued at the site: the master learns of such a job from the spool.
        assert_exactly_once(site.ended("central", other), IDS[1::2])
        assert_executed_once(report, other, DEVICES // 2)


def test_killed_while_returns_are_being_written(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 1)
    site.until(lambda: site.counts("lisbon", jid), "the first outcomes are on the gateway's disk")
    kill_and_start_again(site)
    assert_it_ends_once(site, jid)


def test_killed_again_as_soon_as_it_is_back(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 8)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    kill_and_start_again(site)
    kill_and_start_again(site)
    assert_it_ends_once(site, jid)
