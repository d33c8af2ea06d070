"""A gateway whose store lost its last commits while no master was in reach: said at the site and at the master."""

from __future__ import annotations

import json
from typing import Any

import pytest

from device_agent.protocol.messages import decode_stored
from tests.peers.database import look
from tests.peers.system import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

EVENTS = 20


def findings(system: System, station: str, check: str) -> list[dict[str, Any]]:
    return [each for each in system.view(station, "/check")["findings"] if each["check"] == check]


def rows(system: System, station: str, sql: str) -> list[Any]:
    return look(system.state_of(station) / "station.sqlite", sql)


def post(system: System, station: str, path: str, **body: Any) -> dict[str, Any]:
    status, answer = system.ask(station, "POST", path, json.dumps(body).encode())
    assert status in (200, 201), answer
    return dict(json.loads(answer))


def test_a_gateway_without_its_log_says_what_is_gone_and_is_not_fenced(system: System) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    system.add_agent("cam-1", "lisbon")
    system.present(1)
    # A stop in order brings the log home: what is accepted from now on is in the log alone.
    system.stop("lisbon")
    system.restart("lisbon")
    system.connected("lisbon")
    system.present(1)
    taken = system.issue("central", "cam-1", "test.sleep", 120)
    system.until(lambda: system.job("central", taken).sites[0].state == "answering", "the site has taken the job")

    post(system, "lisbon", "/spool/drill", seconds=600)
    for number in range(EVENTS):
        post(system, "lisbon", "/events", events=[{"tag": "door/open", "data": {"n": number}}])
    lost = system.issue("lisbon", "cam-1", "test.sleep", 120)
    system.until(lambda: bool(system.waiting("lisbon", lost)), "the site has taken its own job")
    before = rows(system, "lisbon", "SELECT value FROM station WHERE key = 'epoch'")
    system.until(lambda: lost.encode() in witness(system), "the witness names the job")
    system.stop("cam-1")
    system.kill("lisbon")
    (system.state_of("lisbon") / "station.sqlite-wal").unlink()
    system.restart("lisbon")

    system.connected("lisbon")
    assert rows(system, "lisbon", "SELECT value FROM station WHERE key = 'epoch'") != before
    assert findings(system, "lisbon", "twins") == findings(system, "central", "twins") == []
    (finding,) = findings(system, "lisbon", "store")
    assert finding["severity"] == "error"
    missing = system.view("lisbon", "/spool/verify")["store"]["missing"]["events"]
    # Beside these the drill told of itself.
    assert missing >= EVENTS
    assert f"{missing} accepted events are gone" in finding["finding"]
    assert lost in finding["finding"]
    said = system.command("spool", "verify", station="lisbon", status=1)
    assert "lost commits" in said.out + said.error
    assert "unknown" in system.ended("central", taken).words().values()
    told = "SELECT data FROM events WHERE tag = 'outstation/station/lisbon/damaged'"
    system.until(lambda: bool(rows(system, "central", told)), "the master is told")
    event = decode_stored(rows(system, "central", told)[0][0])
    assert lost in event["jobs"]
    assert event["missing"]["events"] == missing

    def damage_at_master() -> int:
        (site,) = system.view("central", "/spool")["sites"]
        (events,) = [each for each in site["classes"] if each["class"] == "events"]
        return int(events["dropped"].get("damage", 0))

    system.until(lambda: damage_at_master() == missing, "the master has the site's ledger")
    system.command("spool", "acknowledge", station="lisbon", status=0)
    system.command("spool", "verify", station="lisbon", status=0)
    assert [each["severity"] for each in findings(system, "lisbon", "store")] == ["info"]


def witness(system: System) -> bytes:
    return (system.state_of("lisbon") / "station.sqlite.witness").read_bytes()
