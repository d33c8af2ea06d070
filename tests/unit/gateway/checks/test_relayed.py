"""gateway/checks/relayed.py."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.checks.relayed import RECENT_SECONDS, check
from tests.unit.gateway.checks.conftest import Told

NOW = 1_000_000.0


def site(**changed: Any) -> dict[str, Any]:
    known = {"site": "lisbon", "link": "iberia", "proven": 0.0, "unproven": 0.0}
    return {**known, "refused": 0, "refused_at": 0.0, "reason": "", **changed}


@pytest.mark.parametrize(
    ("relayed", "severity"),
    [
        ([site(proven=5.0)], "ok"),
        ([site(proven=5.0, unproven=4.0)], "ok"),
        ([site(unproven=4.0)], "warning"),
        ([site(proven=5.0, unproven=6.0)], "warning"),
        ([site(proven=5.0, refused=2, refused_at=NOW - 1.0, reason="unproven")], "error"),
        ([site(proven=5.0, refused=2, refused_at=NOW - RECENT_SECONDS, reason="unproven")], "ok"),
    ],
)
async def test_each_site_behind_a_relay_is_told_by_how_it_proved_itself(
    facts: Told, relayed: list[dict[str, Any]], severity: str
) -> None:
    facts.relayed, facts.time = relayed, NOW
    (finding,) = await check(facts)
    assert finding.severity == severity
    if severity != "ok":
        assert finding.about == "lisbon"
        assert "iberia" in finding.finding


async def test_without_a_site_behind_a_relay_there_is_nothing_to_say(facts: Told) -> None:
    assert await check(facts) == []
