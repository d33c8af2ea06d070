"""gateway/checks/spool.py."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.checks.spool import check
from tests.unit.gateway.checks.conftest import Told


def entry(name: str, filled: int = 0, **dropped: int) -> dict[str, Any]:
    return {"class": name, "pending": filled * 10, "pending_bytes": filled, "budget_bytes": 100, "dropped": dropped}


async def test_a_station_that_spools_nothing_has_no_finding(facts: Told) -> None:
    assert await check(facts) == []


@pytest.mark.parametrize(
    ("name", "filled", "severity", "meaning"),
    [
        ("returns", 70, "warning", "no answer is taken any more"),
        ("returns", 95, "error", "no answer is taken any more"),
        ("events", 70, "warning", "the oldest give way"),
        ("telemetry", 100, "error", "the oldest give way"),
    ],
)
async def test_the_fuller_a_class_is_the_louder_it_is(
    name: str, filled: int, severity: str, meaning: str, facts: Told
) -> None:
    facts.classes = [entry("audit", 69), entry(name, filled)]
    (finding,) = await check(facts)
    assert (finding.severity, finding.about) == (severity, f"{name} room")
    assert finding.finding == f"{name} fill {filled}% of their budget: {filled * 10:,} items wait"
    assert meaning in finding.meaning
    assert "outstation spool status" in finding.fix
    assert f"spool.{name}_megabytes" in finding.fix


async def test_what_was_dropped_is_told_with_its_reasons(facts: Told) -> None:
    facts.classes = [entry("returns"), entry("events", 0, budget=1200, damage=3, coalesced=99)]
    (finding,) = await check(facts)
    assert (finding.severity, finding.about) == ("warning", "events dropped")
    assert finding.finding == "1,203 events never reached a master: 1,200 for budget, 3 for damage"
    assert "the ledger counts them" in finding.meaning
    assert finding.fix.startswith("outstation spool status")


async def test_room_everywhere_is_fine(facts: Told) -> None:
    facts.classes = [entry("returns", 3), entry("events", 0, coalesced=99)]
    (finding,) = await check(facts)
    assert (finding.severity, finding.finding) == ("ok", "30 items wait, every class has room")
