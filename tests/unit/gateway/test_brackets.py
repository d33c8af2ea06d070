"""IPv6 addresses in settings: what no address can be is named with the right form, and keeps the unit down."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq

from device_agent.errors import EXIT_CONFIG, ConfigInvalid, UsageInvalid
from gateway.brackets import address_fault
from gateway.fleet.description import check_address
from gateway.fleet.join_file import JoinBroker
from gateway.station_settings import settings_for

KEY = zmq.curve_keypair()[0].decode("ascii")


@pytest.mark.parametrize(
    ("text", "key", "written"),
    [
        ("sites:\n  listen: tcp://::1:4510\n", "sites.listen", "tcp://[::1]:4510"),
        ("sites:\n  listen: 'tcp://[::1:4510'\n", "sites.listen", "tcp://[::1]:4510"),
        ("api:\n  listen: ::1:4512\n", "api.listen", "[::1]:4512"),
        (f"masters:\n- address: tcp://2001:db8::1:4510\n  key: '{KEY}'\n", "masters[0].address", "[2001:db8::1]:4510"),
        ('broker:\n  host: "[::1]"\n', "broker.host", "without brackets: ::1"),
    ],
    ids=["sites", "half a bracket", "api", "masters", "broker"],
)
def test_what_no_address_can_be_is_a_wrong_setting(text: str, key: str, written: str, tmp_path: Path) -> None:
    file = tmp_path / "station.yaml"
    file.write_text(f"name: lisbon\n{text}")
    with pytest.raises(ConfigInvalid) as error:
        settings_for("gateway", file)
    assert error.value.where == f"{file}: {key}"
    assert written in str(error.value.allowed)
    assert error.value.exit_status == EXIT_CONFIG


@pytest.mark.parametrize(
    "address",
    ["tcp://[::1]:4510", "tcp://[fe80::1%eth0]:4510", "tcp://*:4510", "tcp://eth0:4510", "0.0.0.0:4512", "[::]:4512"],
)
def test_an_address_in_its_right_form_has_no_fault(address: str) -> None:
    assert address_fault(address) == ""


def test_the_address_of_a_master_and_the_host_of_a_join_are_looked_at_when_they_are_typed() -> None:
    with pytest.raises(UsageInvalid) as error:
        check_address("tcp://2001:db8::1:4510")
    assert "tcp://[2001:db8::1]:4510" in str(error.value.allowed)
    assert check_address("tcp://[2001:db8::1]:4510")
    with pytest.raises(ValueError, match="without brackets: ::1"):
        JoinBroker(host="[::1]")
