"""The agent's settings table."""

from __future__ import annotations

import socket
from typing import Any

import msgspec
import pytest

from device_agent.config import AgentSettings


def test_a_site_is_all_an_agent_must_be_told() -> None:
    table = msgspec.convert({"site": "lisbon"}, AgentSettings)
    assert table.device_id() == socket.gethostname()
    assert (table.broker.host, table.broker.port) == ("127.0.0.1", 1884)
    assert table.state_dir == "/var/lib/outstation-agent"


def test_an_id_that_is_given_is_in_force() -> None:
    assert msgspec.convert({"site": "lisbon", "id": "cam-007"}, AgentSettings).device_id() == "cam-007"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"site": "a/b"},
        {"site": "lisbon", "id": "cam 7"},
        {"site": "lisbon", "id": "cam\n"},
        {"site": "lisbon", "broker": {"port": 0}},
        {"site": "lisbon", "broker": {"hots": "x"}},
        {"site": "lisbon", "log_level": "loud"},
        {"site": "lisbon", "drain_seconds": -1},
        {"site": "lisbon", "state_dir": ""},
    ],
)
def test_a_wrong_value_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, AgentSettings)


def test_every_setting_says_what_it_means() -> None:
    schema = msgspec.json.schema(AgentSettings)
    for table in ("AgentSettings", "BrokerSettings"):
        for name, field in schema["$defs"][table]["properties"].items():
            assert field.get("description") or "$ref" in str(field), f"{table}.{name} has no description"
