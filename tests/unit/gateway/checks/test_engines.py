"""gateway/checks/engines.py."""

from __future__ import annotations

from gateway.checks.engines import check
from tests.unit.gateway.checks.conftest import Told


async def test_an_engine_that_ends_again_and_again_is_said_with_why_and_what_mends_it(facts: Told) -> None:
    assert await check(facts) == []
    facts.failing = [("logtail", "it used up its memory")]
    (finding,) = await check(facts)
    assert (finding.severity, "logtail does not run: it used up its memory" in finding.finding) == ("warning", True)
    assert "outstation engines restart logtail" in finding.fix
