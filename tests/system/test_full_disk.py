"""A gateway whose disk is full: it goes on, starts again, says so, and what it did not keep is a number with a name."""

from __future__ import annotations

from typing import Any

import pytest

from device_agent.errors import StationFailed
from gateway.store.reserve import NAME as RESERVE
from gateway.store.reserve import RESERVE_BYTES
from tests.peers.small_disk import small_disk
from tests.peers.system import System, assert_exactly_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 5


def kept(system: System) -> int:
    reserve = system.state_of("lisbon") / RESERVE
    return reserve.stat().st_size if reserve.exists() else 0


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

        # What was kept for a full disk may be used up by now: a station that starts on one has it again.
        disk.make_room()
        system.until(lambda: kept(system) == RESERVE_BYTES, "room is kept again")
        system.kill("lisbon")
        disk.fill()
        system.restart("lisbon")
        system.present(DEVICES)
        assert finding(system, "disk")["severity"] == "error"
        assert finding(system, "disk")["finding"].startswith("full")
        assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), names)
        system.command("spool", "verify", station="lisbon", status=0)

        # Now it is used up, and not one byte is left: what is asked meanwhile waits for room.
        disk.fill()
        asked = system.issue("central", "*", "test.ping")
        disk.make_room()
        system.until(lambda: not finding(system, "disk")["finding"].startswith("full"), "there is room again")
        for jid in (asked, system.issue("central", "*", "test.ping")):
            assert_exactly_once(system.ended("central", jid), names)
        system.command("spool", "verify", station="lisbon", status=0)

        # Where not even that room was kept nothing can be opened: it says so, and begins when there is room.
        assert system.stop("lisbon") == 0
        (system.state_of("lisbon") / RESERVE).unlink(missing_ok=True)
        disk.fill()
        with pytest.raises(StationFailed, match="status 1") as failed:
            system.restart("lisbon")
        assert "the disk is full" in (failed.value.found or "")
        del system.children["lisbon"]
        disk.make_room()
        system.restart("lisbon")
        system.present(DEVICES)
        assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), names)
        system.stop("swarm")
        system.stop("lisbon")
