"""Devices that stay connected while their station or their broker is away are found again."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gateway.rehearsal import free_port
from tests.peers.system import System, assert_exactly_once, assert_executed_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DEVICES = 50
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]


@pytest.fixture(scope="module")
def shared() -> Iterator[System]:
    with whole_system() as system:
        port = free_port()
        system.add_broker(port)
        system.add_master()
        system.add_gateway("lisbon", "central", broker={"mode": "external", "port": port})
        system.join("lisbon")
        system.add_swarm(DEVICES, "lisbon")
        yield system


@pytest.fixture
def site(shared: System) -> System:
    if "broker" not in shared.children:
        shared.add_broker(shared.ports["lisbon"])
    if "lisbon" not in shared.children:
        shared.restart("lisbon")
    shared.present(DEVICES)
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


def test_a_gateway_that_lost_its_whole_memory_finds_its_devices_again(site: System) -> None:
    site.stop("lisbon")
    for file in (site.folder / "lisbon").glob("station.sqlite*"):
        file.unlink()
    site.restart("lisbon")
    site.present(DEVICES)
    jid = site.issue("central", "*", "test.ping")
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)


def test_a_broker_that_dies_in_the_middle_of_a_job_costs_no_outcome(site: System) -> None:
    jid = site.issue("central", "*", "test.sleep", 1)
    site.until(lambda: site.job("central", jid).expected == DEVICES, "the master knows who will answer")
    site.kill("broker")
    site.until(lambda: not site.view("lisbon")["broker"]["connected"], "the gateway knows")
    site.add_broker(site.ports["lisbon"])
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
