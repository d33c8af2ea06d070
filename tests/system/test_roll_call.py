"""Devices that stay connected while their station or their broker is away are found again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES, OTHERS = 50, 3
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central", broker=system.add_broker())
        system.join("lisbon")
        system.add_swarm(DEVICES, "lisbon")
        yield system


@pytest.fixture
def site(shared: System) -> System:
    if "broker" not in shared.children:
        shared.add_broker()
    if "lisbon" not in shared.children:
        shared.restart("lisbon")
    shared.present(DEVICES, "lisbon")
    return shared


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "killed"])
def test_a_gateway_that_was_away_finds_its_devices_again_on_the_connections_they_have(
    site: System, orderly: bool
) -> None:
    lost = site.report()["connections_lost"]
    site.stop("lisbon") if orderly else site.kill("lisbon")
    site.restart("lisbon")
    site.present(DEVICES)
    jid = site.issue("central", "*", "test.ping")
    assert_exactly_once(site.ended("central", jid), IDS)
    report = site.report()
    assert_executed_once(report, jid, DEVICES)
    assert report["connections_lost"] == lost


def test_a_gateway_that_lost_its_whole_memory_hears_nobody_whom_it_does_not_let_in_again(site: System) -> None:
    """Its keys and its certificate are files beside the store: it is the same site, and its devices are strangers.

    Others may join. When the store is found again, so are the devices; an operator says that it is the right one.
    """
    # A device was put out before, so that group keys have been counted.
    (gone,) = site.add_swarm(1, "lisbon", prefix="gone-", name="gone")
    site.present(DEVICES + 1)
    site.command("keys", "revoke", gone, "--yes", station="lisbon", status=0)
    site.present(DEVICES)
    site.stop("gone")
    site.stop("lisbon")
    away = site.folder / "away"
    move(site.state_of("lisbon"), away)
    site.restart("lisbon")
    site.until(lambda: site.refusals("lisbon")["mqtt", "unknown_device"] >= DEVICES, "its devices ask to be heard")
    assert site.view("lisbon")["devices"] == 0
    assert site.view("lisbon", "/keys?kind=device")["keys"] == []

    others = site.add_swarm(OTHERS, "lisbon", prefix="other-", name="others")
    site.present(OTHERS, "lisbon", "central")
    jid = site.issue("central", "*", "test.ping")
    assert_exactly_once(site.ended("central", jid), others)
    assert_executed_once(site.report("others"), jid, OTHERS)
    assert jid not in site.report()["executed"]
    assert site.stop("others") == 0

    site.stop("lisbon")
    move(site.state_of("lisbon"), site.folder / "lost")
    move(away, site.state_of("lisbon"))
    site.restart("lisbon")
    site.present(DEVICES, "lisbon")
    # To the master it is a copy of what it has met since: an operator says that this is the one to go on with.
    site.until(lambda: site.command("sites", "unfence", "lisbon").status == 0, "it knocks, and is let in")
    site.connected("lisbon")
    jid = site.issue("central", "cam-*", "test.ping")
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)


def move(source: Path, target: Path) -> None:
    """Move the store of a station that does not run."""
    target.mkdir(exist_ok=True)
    for file in source.glob("station.sqlite*"):
        file.rename(target / file.name)


def test_a_broker_that_dies_in_the_middle_of_a_job_costs_no_outcome(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 1)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    site.kill("broker")
    site.until(lambda: not site.view("lisbon")["broker"]["connected"], "the gateway knows")
    site.add_broker()
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)


def test_a_swarm_that_is_frozen_for_a_moment_answers_when_it_goes_on(site: System) -> None:
    process = site.children["swarm"].process
    process.send_signal(signal.SIGSTOP)
    jid = site.issue("central", "*", "test.ping")
    site.until(lambda: site.waiting("lisbon", jid) == {"delivered": DEVICES}, "the job is on its way")
    process.send_signal(signal.SIGCONT)
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)
