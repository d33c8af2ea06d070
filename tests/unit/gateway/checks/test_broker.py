"""gateway/checks/broker.py."""

from __future__ import annotations

from typing import Any

from gateway.broker.embedded import COMFORTABLE_DEVICES
from gateway.checks.broker import check
from tests.unit.gateway.checks.conftest import Told


def broker(**changed: Any) -> dict[str, Any]:
    return {
        "mode": "managed",
        "host": "127.0.0.1",
        "port": 1884,
        "connected": True,
        "last_error": None,
        **changed,
    }


async def test_a_station_without_a_broker_has_nothing_to_say(facts: Told) -> None:
    assert await check(facts) == []


async def test_a_broker_that_answers_is_ok(facts: Told) -> None:
    facts.station["broker"] = broker()
    (finding,) = await check(facts)
    assert (finding.severity, finding.fix) == ("ok", "")
    assert "managed broker at 127.0.0.1:1884" in finding.finding


async def test_a_broker_that_does_not_answer_is_an_error_with_its_reason(facts: Told) -> None:
    facts.station["broker"] = broker(connected=False, last_error="Connection refused")
    (finding,) = await check(facts)
    assert finding.severity == "error"
    assert "Connection refused" in finding.finding
    assert "broker.port" in finding.fix


async def test_the_embedded_broker_warns_above_what_it_is_fine_for(facts: Told) -> None:
    facts.station |= {"broker": broker(mode="embedded"), "devices": COMFORTABLE_DEVICES}
    assert [finding.severity for finding in await check(facts)] == ["ok"]
    facts.station["devices"] = COMFORTABLE_DEVICES + 1
    (finding,) = await check(facts)
    assert finding.severity == "warning"
    assert "apt install mosquitto" in finding.fix
