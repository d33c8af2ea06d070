"""The broker's section of the settings (gateway/config.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid
from device_agent.settings import load
from gateway.config import BrokerSettings, StationSettings


def test_devices_ask_to_join_one_port_above_unless_told_otherwise() -> None:
    assert BrokerSettings().enrollment_port == 1885
    assert BrokerSettings(port=2000, enroll_port=1999).enrollment_port == 1999


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("port: 2000\n  enroll_port: 2000", "must differ"),
        ("port: 2000\n  tls_port: 2001", "must differ"),
        ("port: 65535", "there is no port above"),
        ("mode: embedded\n  tls_port: 8883", "no TLS"),
    ],
)
def test_doors_that_cannot_be_are_told_with_their_line(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(f"name: lisbon\nbroker:\n  {lines}\n", encoding="utf-8")
    with pytest.raises(ConfigInvalid, match=message):
        load(StationSettings, path)
