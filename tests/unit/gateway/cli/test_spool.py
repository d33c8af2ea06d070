"""gateway/cli/spool.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peers.api_double import ApiDouble
from tests.unit.gateway.cli.conftest import Shell


def a_spool(*, enabled: bool, pending: int) -> dict[str, Any]:
    """As the API shows it."""
    counts = {"accepted": pending, "delivered": 0, "pending": pending, "pending_bytes": pending * 100}
    classes: list[dict[str, Any]] = [
        {"class": name, **counts, "budget_bytes": 2**20, "dropped": {}}
        for name in ("returns", "events", "audit", "telemetry")
    ]
    return {"enabled": enabled, "epoch": "e" * 16, "classes": classes, "sites": []}


@pytest.mark.parametrize("pending", [0, 7])
def test_a_station_whose_masters_were_taken_from_its_settings_says_what_waits_all_the_same(
    pending: int, api: ApiDouble, shell: Shell
) -> None:
    api.refusals["/spool"] = (200, a_spool(enabled=False, pending=pending))
    finished = shell.here("spool", "status")
    assert finished.status == 0
    assert finished.out.count("700 B") == (4 if pending else 0)
    assert ("nothing waits here" in finished.error) is (not pending)
    assert "no master above" in finished.error
