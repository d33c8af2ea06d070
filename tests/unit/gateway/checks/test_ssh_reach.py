"""gateway/checks/ssh_reach.py."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.checks.ssh_reach import check
from tests.unit.gateway.checks.conftest import Told


@pytest.mark.parametrize("link", [None, {"devices": 0, "away": 0}])
async def test_without_such_devices_there_is_no_finding(link: dict[str, Any] | None, facts: Told) -> None:
    facts.station["ssh"] = link
    assert await check(facts) == []


@pytest.mark.parametrize(
    ("away", "severity", "said"),
    [
        (0, "ok", "every SSH device answers: 1,200"),
        (1, "warning", "1 of 1,200 SSH devices do not answer"),
        (1200, "error", "1,200 of 1,200 SSH devices do not answer"),
    ],
)
async def test_it_counts_those_that_do_not_answer(away: int, severity: str, said: str, facts: Told) -> None:
    facts.station["ssh"] = {"devices": 1200, "away": away}
    (finding,) = await check(facts)
    assert (finding.severity, finding.finding) == (severity, said)
    assert bool(finding.meaning) == (severity != "ok")
    assert finding.fix.startswith("outstation devices list" if away else "")
