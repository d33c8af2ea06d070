"""gateway/checks/schedule.py."""

from __future__ import annotations

from gateway.checks.schedule import check
from tests.unit.gateway.checks.conftest import Told


async def test_an_entry_whose_last_run_failed_is_said_with_why_and_where_to_look(facts: Told) -> None:
    assert await check(facts) == []
    facts.schedule = [("nightly", "2 failed (jid 20261121031500000000)")]
    (finding,) = await check(facts)
    assert (finding.severity, "nightly" in finding.finding, "2 failed" in finding.finding) == ("warning", True, True)
    assert finding.fix == "outstation schedule show nightly"
