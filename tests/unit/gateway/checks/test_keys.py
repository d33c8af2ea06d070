"""gateway/checks/keys.py."""

from __future__ import annotations

import pytest

from gateway.checks.keys import check
from tests.unit.gateway.checks.conftest import Told


def key(state: str) -> dict[str, str]:
    return {"site": "lisbon", "state": state, "fingerprint": "aaaa-bbbb-cccc-dddd", "address": "192.0.2.9"}


@pytest.mark.parametrize("states", [[], ["accepted"], ["rejected"], ["accepted", "rejected"]])
async def test_decided_keys_want_no_attention(states: list[str], facts: Told) -> None:
    facts.keys = [key(state) for state in states]
    assert [finding.severity for finding in await check(facts)] == ["ok"]


async def test_a_pending_key_is_told_with_its_fingerprint_and_the_command_that_accepts_it(facts: Told) -> None:
    facts.keys = [key("pending")]
    (finding,) = await check(facts)
    assert (finding.severity, finding.fix) == ("info", "outstation keys accept lisbon")
    assert "aaaa-bbbb-cccc-dddd" in finding.finding


async def test_a_second_key_for_a_name_is_a_warning_that_says_from_where(facts: Told) -> None:
    facts.keys = [key("accepted"), key("denied")]
    (finding,) = await check(facts)
    assert finding.severity == "warning"
    assert "192.0.2.9 claims site lisbon" in finding.finding
    assert "keys accept lisbon --fingerprint aaaa-bbbb-cccc-dddd" in finding.fix


async def test_each_dark_site_is_a_warning(facts: Told) -> None:
    facts.sites = [
        {"site": "lisbon", "connected": False, "devices": 7},
        {"site": "madrid", "connected": True, "devices": 3},
    ]
    (finding,) = await check(facts)
    assert (finding.check, finding.severity) == ("sites", "warning")
    assert "lisbon is dark, 7 devices" in finding.finding


async def test_devices_that_wait_are_counted_and_a_copied_one_is_named(facts: Told) -> None:
    facts.devices = [("pending", "a" * 26), ("quarantined", "cam-1"), ("pending", "b" * 26)]
    copied, waiting = await check(facts)
    assert (copied.severity, waiting.severity) == ("warning", "info")
    assert "identity of cam-1" in copied.finding
    assert waiting.finding == "2 devices wait to be accepted"
