"""gateway/checks/broker.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.broker.embedded import COMFORTABLE_DEVICES
from gateway.checks.broker import at_rest, check
from gateway.config import BrokerSettings
from tests.unit.gateway.checks.conftest import Told, a_box


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


async def test_a_broker_that_is_to_listen_elsewhere_is_told_with_what_to_correct(facts: Told, tmp_path: Path) -> None:
    # RFC 5737 keeps these addresses for documentation: no machine has one.
    facts.station["broker"] = broker(host="192.0.2.10", mode="service", connected=False)
    (finding,) = await check(facts)
    assert "192.0.2.10 is no address of this machine" in finding.finding
    assert finding.fix.startswith("ip -brief address")
    (stopped,) = at_rest(a_box(tmp_path, broker=BrokerSettings(host="192.0.2.10")))
    assert (stopped.finding, stopped.severity) == (finding.finding, "error")
    # Another's broker is where it is.
    facts.station["broker"] = broker(host="192.0.2.10", mode="external")
    (finding,) = await check(facts)
    assert finding.severity == "ok"


async def test_the_embedded_broker_warns_above_what_it_is_fine_for(facts: Told) -> None:
    facts.station |= {"broker": broker(mode="embedded"), "devices": COMFORTABLE_DEVICES}
    assert [finding.severity for finding in await check(facts)] == ["ok"]
    facts.station["devices"] = COMFORTABLE_DEVICES + 1
    (finding,) = await check(facts)
    assert finding.severity == "warning"
    assert "apt install mosquitto" in finding.fix
