"""gateway/checks/returns.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.checks.returns import HOUR, check
from tests.peers.clock import STARTED_WALL as NOW
from tests.unit.gateway.checks.conftest import Told, a_box


def told(facts: Told, folder: Path, *, waiting: int, confirmed: float | None) -> Told:
    facts.of_box = a_box(folder)
    facts.classes = [{"class": "events", "pending": 9}, {"class": "returns", "pending": waiting}]
    facts.confirmed = confirmed
    facts.station["started"] = NOW - 2 * HOUR
    return facts


async def test_a_station_without_masters_has_no_finding(facts: Told) -> None:
    assert await check(facts) == []


@pytest.mark.parametrize(
    ("waiting", "age", "severity", "said"),
    [
        (0, 100 * HOUR, "ok", "no return waits, the last was confirmed at 2026-11-16T23:15:00Z"),
        (0, None, "ok", "no return waits, none was ever confirmed"),
        (4, HOUR - 1, "ok", "4 on their way, the last was confirmed at 2026-11-21T02:15:01Z"),
        (4, HOUR, "warning", "no master has confirmed any for 1 hours (the last was confirmed at"),
        (1200, 24 * HOUR - 1, "warning", "1,200 wait"),
        (4, 24 * HOUR, "error", "no master has confirmed any for 24 hours"),
        (4, None, "warning", "4 wait, and no master has confirmed any for 2 hours (none was ever confirmed)"),
    ],
)
async def test_what_waits_unconfirmed_is_told_by_how_long(
    waiting: int, age: float | None, severity: str, said: str, tmp_path: Path, facts: Told
) -> None:
    confirmed = None if age is None else NOW - age
    (finding,) = await check(told(facts, tmp_path, waiting=waiting, confirmed=confirmed))
    assert finding.severity == severity
    assert said in finding.finding
    assert bool(finding.fix) == bool(finding.meaning) == (severity != "ok")
    if finding.fix:
        assert "outstation spool status" in finding.fix
        assert "nothing is lost" in finding.meaning
