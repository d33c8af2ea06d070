"""gateway/checks/trust.py."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.checks.trust import DAY_SECONDS, check
from tests.unit.gateway.checks.conftest import Told

NOW = 1_795_230_900.0


def fleet(**changed: Any) -> dict[str, Any]:
    return {
        "role": "gateway",
        "joined": True,
        "root_version": 3,
        "root_issued": NOW - 10 * DAY_SECONDS,
        "certified": int(NOW - 10 * DAY_SECONDS),
        "expires": int(NOW + 20 * DAY_SECONDS),
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "severity", "said"),
    [
        ({}, "ok", "root list version 3, certificate until 2026"),
        ({"role": "master", "expires": None}, "ok", "root list version 3"),
        ({"expires": int(NOW + 3 * DAY_SECONDS)}, "warning", "the site certificate ends at"),
        ({"certified": int(NOW - DAY_SECONDS), "expires": int(NOW + 6 * DAY_SECONDS)}, "ok", "certificate until 2026"),
        ({"expires": int(NOW - 1)}, "error", "the site certificate expired at"),
        ({"root_issued": NOW - 340 * DAY_SECONDS}, "warning", "340 days old"),
        ({"root_issued": NOW - 401 * DAY_SECONDS}, "error", "401 days old"),
        ({"joined": False, "root_version": None, "root_issued": None, "expires": None}, "warning", "nobody vouches"),
        ({"role": "master", "joined": False, "expires": None}, "error", "not in the newest root list"),
        (
            {"joined": False, "lapsed": "expired", "expires": int(NOW - 1), "root_issued": NOW - 500 * DAY_SECONDS},
            "error",
            "the site certificate expired at 2026-11-21T03:14:59Z, and the clock of this machine says 2026-11-21T03:15",
        ),
        ({"joined": False, "lapsed": "issuer_revoked"}, "error", "does not count any more (issuer_revoked)"),
    ],
)
async def test_what_vouches_for_a_station_is_told_before_it_ends(
    facts: Told, changed: dict[str, Any], severity: str, said: str
) -> None:
    facts.fleet, facts.time = fleet(**changed), NOW
    (finding,) = await check(facts)
    assert finding.severity == severity
    assert said in finding.finding
    assert (finding.fix == "") == (severity == "ok")
