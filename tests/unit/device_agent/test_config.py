"""The agent's settings table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent import config
from device_agent.config import AgentSettings
from device_agent.errors import ConfigInvalid


def test_an_agent_need_not_be_told_anything() -> None:
    table = msgspec.convert({}, AgentSettings)
    assert (table.site, table.broker.host, table.broker.port, table.root) == (None, None, None, None)
    assert not table.trust_on_first_use
    assert table.state_dir == "/var/lib/outstation-agent"


@pytest.mark.parametrize(
    "wrong",
    [
        {"site": "a/b"},
        {"id": "cam-7"},
        {"site": "lisbon", "broker": {"port": 0}},
        {"site": "lisbon", "broker": {"hots": "x"}},
        {"site": "lisbon", "broker": {"host": ""}},
        {"root": "00"},
        {"root": "0" * 31 + "g"},
        {"serial": ""},
        {"serial": "x" * 65},
        {"trust_on_first_use": 1},
        {"log_level": "loud"},
        {"drain_seconds": -1},
        {"state_dir": ""},
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


def test_only_the_usual_file_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigInvalid):
        config.load(tmp_path / "agent.yaml")
    monkeypatch.setattr(config, "AGENT_CONFIG", tmp_path / "agent.yaml")
    assert config.load(tmp_path / "agent.yaml") == AgentSettings()
    (tmp_path / "agent.yaml").write_text("site: lisbon\n")
    assert config.load(tmp_path / "agent.yaml").site == "lisbon"
