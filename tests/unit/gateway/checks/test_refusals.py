"""gateway/checks/refusals.py."""

from __future__ import annotations

from gateway.checks.refusals import NAMED, check
from tests.unit.gateway.checks.conftest import Told


async def test_a_quiet_network_is_ok(facts: Told) -> None:
    assert [finding.severity for finding in await check(facts)] == ["ok"]


async def test_each_reason_is_named_with_its_peer_and_its_count(facts: Told) -> None:
    facts.refused = [("mqtt", "malformed", "os/lisbon/d/cam/up/hello", 12), ("uplink", "gap", "madrid@192.0.2.1", 1)]
    findings = await check(facts)
    assert [finding.finding for finding in findings] == [
        "12 refused on mqtt: malformed, from os/lisbon/d/cam/up/hello",
        "1 refused on uplink: gap, from madrid@192.0.2.1",
    ]
    assert {finding.severity for finding in findings} == {"info"}


async def test_what_was_the_stations_own_fault_accuses_no_peer(facts: Told) -> None:
    facts.refused = [
        ("uplink", "malformed", "madrid@192.0.2.1", 9),
        ("uplink", "store_failed", "a-masters-key", 3),
        ("uplink", "store_failed", "another-masters-key", 2),
        ("questions", "busy", "cam-1", 1),
    ]
    own, busy, other = await check(facts)
    assert own.finding == "5 not taken on uplink since the start, for a reason of this station: store_failed"
    assert busy.finding == "1 not taken on questions since the start, for a reason of this station: busy"
    assert other.finding == "9 refused on uplink: malformed, from madrid@192.0.2.1"
    for finding in (own, busy):
        assert not any(
            name in f"{finding.finding} {finding.meaning} {finding.fix}" for name in ("key", "cam-1", "peer")
        )


async def test_a_flood_of_peers_does_not_flood_the_reader(facts: Told) -> None:
    facts.refused = [("mqtt", "malformed", f"peer {number}", 1000 - number) for number in range(500)]
    findings = await check(facts)
    assert len(findings) == NAMED
    assert "peer 0" in findings[0].finding
