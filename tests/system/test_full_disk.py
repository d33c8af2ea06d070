"""A gateway whose disk is full: it goes on, starts again, says so, and what it did not keep is a number with a name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peers.small_disk import small_disk
from tests.peers.system import System, assert_exactly_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

DEVICES = 5


def finding(system: System, check: str) -> dict[str, Any]:
    return next(each for each in system.view("lisbon", "/check")["findings"] if each["check"] == check)


def test_jobs_go_on_while_the_disk_of_a_gateway_is_full_and_it_starts_on_one(system: System) -> None:
    with small_disk(system.state_of("lisbon"), 48) as disk:
        system.add_master()
        system.add_gateway("lisbon", "central")
        system.join("lisbon")
        names = system.add_swarm(DEVICES, "lisbon")
        system.present(DEVICES)
        disk.fill()
        assert disk.free() == 0
        assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), names)

        system.kill("lisbon")
        disk.fill()
        system.restart("lisbon")
        system.present(DEVICES)
        assert finding(system, "disk")["severity"] == "error"
        assert finding(system, "disk")["finding"].startswith("full")
        assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), names)
        system.command("spool", "verify", station="lisbon", status=0)

        disk.make_room()
        system.until(lambda: not finding(system, "disk")["finding"].startswith("full"), "there is room again")
        assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), names)
        system.command("spool", "verify", station="lisbon", status=0)
        system.stop("swarm")
        system.stop("lisbon")
