"""gateway/checks/ssh.py: devices that nobody can log in to any more are named, with what mends it."""

from __future__ import annotations

from gateway.checks.ssh import check
from tests.unit.gateway.checks.conftest import Told


async def test_lost_secrets_are_an_error_with_the_first_names(facts: Told) -> None:
    assert await check(facts) == []
    facts.lost = [f"cam-{number}" for number in range(7)]
    (finding,) = await check(facts)
    assert finding.severity == "error"
    assert "7 SSH devices" in finding.finding
    assert finding.finding.endswith("cam-4 and 2 more")
    assert "devices set cam-0" in finding.fix
