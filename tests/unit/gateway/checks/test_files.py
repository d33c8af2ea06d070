"""gateway/checks/files.py."""

from __future__ import annotations

from gateway.checks.files import check
from tests.unit.gateway.checks.conftest import Told


async def test_a_full_cache_is_said_with_the_setting_that_mends_it(facts: Told) -> None:
    assert await check(facts) == []
    facts.no_room = "20 bytes have no room in 10; 3 of 3 files in it are in use"
    (finding,) = await check(facts)
    assert (finding.severity, "have no room" in finding.finding) == ("warning", True)
    assert "files.cache_megabytes" in finding.fix
