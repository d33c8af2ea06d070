"""gateway/checks/beacons.py."""

from __future__ import annotations

from gateway.checks import refusals
from gateway.checks.beacons import WORDS, check
from tests.unit.gateway.checks.conftest import Told


async def test_beacons_that_look_are_no_finding(facts: Told) -> None:
    facts.refused = [("mqtt", "malformed", "cam-1", 3)]
    assert await check(facts) == []


async def test_each_way_in_which_beacons_fail_is_named_once_with_what_mends_it(facts: Told) -> None:
    facts.refused = [("station", reason, "lisbon-station", 7) for reason in WORDS]
    found = await check(facts)
    assert {finding.severity for finding in found} == {"warning"}
    for finding, reason in zip(found, WORDS, strict=True):
        assert f"7 times since the start ({reason} on station, lisbon-station)" in finding.finding
        assert finding.meaning
        assert finding.fix
    # They are no bytes from a network.
    assert [finding.severity for finding in await refusals.check(facts)] == ["ok"]
