"""A gateway whose disk fails while it is connected: its check, its master and the outcomes of jobs name the disk."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.peers.disk_faults import Fault, store_files
from tests.peers.system import System, assert_exactly_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 3
FAILS = r"since \S+: disk I/O error"


def findings(system: System, station: str, check: str) -> list[dict[str, Any]]:
    return [each for each in system.view(station, "/check")["findings"] if each["check"] == check]


def test_a_failing_disk_is_named_by_its_site_its_master_and_every_outcome(system: System) -> None:
    system.add_master()
    gateway = system.add_gateway("lisbon", "central")
    system.join("lisbon")
    names = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES)
    child = system.children["lisbon"]
    fault = Fault(child.process.pid, "eio-write", store_files(system.state_of("lisbon")))
    fault.begin()
    try:
        # One that only the disk keeps from being taken, and one that is still wanted when the disk works again.
        dropped = system.issue("central", "*", "test.ping", expires_seconds=4)
        late = system.issue("central", "*", "test.ping", expires_seconds=4, late="run")
        waits = system.issue("central", "*", "test.ping", late="run", expires_seconds=600)
        system.until(lambda: system.stations["central"].site("lisbon").faults, "the master knows of it")

        (finding,) = findings(system, "lisbon", "store")
        assert finding["severity"] == "error"
        assert re.match(
            r"nothing can be written since \d\d:\d\d:\d\d: disk I/O error \(\d+ commits? failed\)", finding["finding"]
        )
        assert not [each for each in findings(system, "lisbon", "refusals") if "from" in each["finding"]]

        (site,) = [each for each in findings(system, "central", "sites") if "lisbon" in each["finding"]]
        assert site["severity"] == "error"
        assert re.search(rf"site lisbon is connected and takes no job \(store_failed: .*{FAILS}", site["finding"])
        shown = system.command("sites", "list").out
        assert "connected, store_failed" in shown
        assert re.search(FAILS, system.command("sites", "show", "lisbon").out)

        for jid in (dropped, late):
            ended = system.ended("central", jid)
            assert sorted(ended.by_device()) == sorted(names)
            assert set(ended.words().values()) <= {"site_dark", "expired"}
            for outcome in ended.outcomes:
                assert re.search(
                    rf"the site was connected and did not take the job \(store_failed: .*{FAILS}", outcome.why or ""
                ), outcome
    finally:
        fault.end()
    assert_exactly_once(system.ended("central", waits), names)
    system.until(lambda: not system.stations["central"].site("lisbon").faults, "the master knows that it is over")
    system.until(lambda: findings(system, "lisbon", "store")[0]["severity"] == "ok", "the store is written again")
    assert gateway.station().present == DEVICES
    system.command("spool", "verify", station="lisbon", status=0)
