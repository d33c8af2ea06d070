"""gateway/checks/store.py."""

from __future__ import annotations

from gateway.checks.store import check
from gateway.store.health import Failing
from tests.unit.gateway.checks.conftest import Told

FAILING = Failing(1_795_740_481.0, "disk I/O error", failures=57, passed=0, fix="look at the disk")


async def test_a_store_that_cannot_be_written_is_an_error_with_its_time_its_reason_and_its_count(facts: Told) -> None:
    facts.unwritten_store = FAILING
    (finding,) = await check(facts)
    assert finding.severity == "error"
    assert finding.finding == "nothing can be written since 00:48:01: disk I/O error (57 commits failed)"
    assert "2026-11-27T00:48:01Z" in finding.meaning


async def test_every_other_file_that_cannot_be_written_is_an_error_of_its_own(facts: Told) -> None:
    facts.unwritten_files = ["the cache of files cannot be written since 00:48:01: disk failed (1 write failed)"]
    (finding,) = await check(facts)
    assert (finding.severity, finding.about) == ("error", "the cache of files")
