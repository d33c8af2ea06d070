"""gateway/checks/returners.py."""

from __future__ import annotations

from gateway.checks.returners import check
from tests.unit.gateway.checks.conftest import Told


async def test_a_returner_that_takes_nothing_is_said_with_why(facts: Told) -> None:
    assert await check(facts) == []
    facts.unreturned = [("smtp", "mail.example.net:25: connection refused")]
    (finding,) = await check(facts)
    assert (finding.severity, "smtp does not take returns: mail" in finding.finding) == ("warning", True)
