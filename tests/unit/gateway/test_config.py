"""gateway/config.py: the settings of stations, read from files as a station reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zmq

from device_agent.errors import EXIT_CONFIG, ConfigInvalid
from device_agent.settings import describe, load
from gateway.config import BrokerSettings, JobsSettings, SitesSettings, StationSettings, UplinkSettings
from gateway.rooms import Role
from gateway.station_settings import settings_for

KEY = zmq.curve_keypair()[0].decode("ascii")


def written(folder: Path, text: str) -> Path:
    """A settings file with this in it."""
    path = folder / "station.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str) -> StationSettings:
    return load(StationSettings, written(folder, text))


def test_a_name_is_all_a_station_must_be_told(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "name: lisbon\n")
    assert settings == StationSettings(name="lisbon")
    assert (settings.state_dir, settings.socket, settings.log_level) == (None, None, "info")
    assert (settings.masters, settings.sites, settings.broker) == ([], None, None)
    assert (settings.uplink, settings.jobs) == (UplinkSettings(echo_seconds=5.0), JobsSettings(keep_hours=24.0))


def test_everything_can_be_written(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        f"""\
name: porto-relay
state_dir: /srv/outstation
socket: /run/relay.sock
log_level: debug
masters:
  - address: tcp://192.0.2.1:4510
    key: "{KEY}"
  - address: tcp://[2001:db8::1]:4511
    key: "{KEY}"
uplink:
  echo_seconds: 0.5
sites:
  listen: tcp://0.0.0.0:4512
broker:
  mode: external
  host: broker.example
  port: 1883
  username: station
  password: "1234"
jobs:
  keep_hours: 48
""",
    )
    assert [master.address for master in settings.masters] == ["tcp://192.0.2.1:4510", "tcp://[2001:db8::1]:4511"]
    assert settings.sites == SitesSettings(listen="tcp://0.0.0.0:4512")
    assert settings.broker == BrokerSettings(
        mode="external", host="broker.example", port=1883, username="station", password="1234"
    )
    assert (settings.uplink.echo_seconds, settings.jobs.keep_hours) == (0.5, 48.0)


def test_a_piece_beside_the_file_overrides_it(tmp_path: Path) -> None:
    path = written(tmp_path, "name: lisbon\nbroker:\n  port: 1884\n  host: 127.0.0.1\n")
    (tmp_path / "station.d").mkdir()
    (tmp_path / "station.d" / "10-port.yaml").write_text("broker:\n  port: 1999\n", encoding="utf-8")
    broker = load(StationSettings, path).broker
    assert broker is not None
    assert (broker.port, broker.host) == (1999, "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "line", "found", "hint"),
    [
        ("name: lisbon\nmaster: []\n", 2, "master", "did you mean 'masters'?"),
        ("name: lisbon\nbroker:\n  prot: 1884\n", 3, "broker.prot", "did you mean 'port'?"),
        ("name: lisbon\nlisten: tcp://0.0.0.0:1\n", 2, "listen", "did you mean sites.listen?"),
        ("name: lisbon\nuplink:\n  echo_second: 5\n", 3, "uplink.echo_second", "did you mean 'echo_seconds'?"),
        ("name: lisbon\nlog_level: verbose\n", 2, "'verbose'", None),
        ("name: lisbon\nlog_level: warn\n", 2, "'warn'", "did you mean 'warning'?"),
        ("name: lisbon\nbroker:\n  port: 70000\n", 3, "70000 (YAML reads a whole number)", None),
        ("name: lisbon\nbroker:\n  port: 0\n", 3, "0 (YAML reads a whole number)", None),
        ("name: lisbon\nbroker:\n  mode: mosquitto\n", 3, "'mosquitto'", None),
        ("name: li/sbon\n", 1, "'li/sbon'", None),
        ("name: 7\n", 1, "7 (YAML reads a whole number)", 'quote it: name: "7"'),
        ("name: lisbon\nuplink:\n  echo_seconds: 0\n", 3, "0 (YAML reads a whole number)", None),
        ("name: lisbon\nuplink:\n  echo_seconds: .nan\n", 3, ".nan (YAML reads a number)", None),
        ("name: lisbon\nsites:\n  listen: 0.0.0.0:4510\n", 3, "'0.0.0.0:4510'", None),
        ("name: lisbon\nmasters:\n  - address: tcp://m:1\n    key: short\n", 4, "'short'", None),
        ("name: lisbon\nmasters: tcp://m:1\n", 2, "'tcp://m:1'", "a list is written masters: [tcp://m:1]"),
        ("name: lisbon\njobs:\n  keep_hours: 0.5\n", 3, "0.5 (YAML reads a number)", None),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_is_near(
    text: str, line: int, found: str, hint: str | None, tmp_path: Path
) -> None:
    with pytest.raises(ConfigInvalid) as error:
        loaded(tmp_path, text)
    assert error.value.where == f"{tmp_path}/station.yaml:{line}"
    assert error.value.found == found
    assert error.value.hint == hint
    assert error.value.allowed
    assert error.value.exit_status == EXIT_CONFIG


@pytest.mark.parametrize("text", ["", "broker:\n", "name:\n"])
def test_a_station_without_a_name_is_told_to_take_one(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as error:
        loaded(tmp_path, text)
    assert "name" in str(error.value.hint)


def test_a_key_that_only_looks_like_one_stops_the_start(tmp_path: Path) -> None:
    text = f'name: lisbon\nmasters:\n  - address: tcp://m:1\n    key: "{"#" * 40}"\n'
    with pytest.raises(ConfigInvalid, match="key") as error:
        loaded(tmp_path, text)
    assert str(error.value.where).startswith(f"{tmp_path}/station.yaml:")


def test_more_masters_than_a_list_may_have_are_refused(tmp_path: Path) -> None:
    entry = f'  - {{address: "tcp://m:1", key: "{KEY}"}}\n'
    assert len(loaded(tmp_path, "name: lisbon\nmasters:\n" + entry * 16).masters) == 16
    with pytest.raises(ConfigInvalid, match="masters"):
        loaded(tmp_path, "name: lisbon\nmasters:\n" + entry * 17)


def test_every_setting_says_what_it_is_for() -> None:
    assert [row.key for row in describe(StationSettings) if not row.description] == []


# --- what a role implies ---------------------------------------------------------------------------------------------


def for_role(role: Role, folder: Path, text: str) -> StationSettings:
    return settings_for(role, written(folder, text))


def test_a_gateway_has_a_broker_and_a_master_has_sites(tmp_path: Path) -> None:
    gateway = for_role("gateway", tmp_path, "name: lisbon\n")
    assert (gateway.broker, gateway.sites) == (BrokerSettings(), None)
    master = for_role("master", tmp_path, "name: central\n")
    assert (master.broker, master.sites) == (None, SitesSettings())


def test_what_is_written_is_kept(tmp_path: Path) -> None:
    gateway = for_role("gateway", tmp_path, "name: lisbon\nbroker:\n  port: 1999\nsites:\n")
    assert gateway.broker == BrokerSettings(port=1999)
    assert gateway.sites == SitesSettings()
    master = for_role("master", tmp_path, "name: central\nsites:\n  listen: tcp://127.0.0.1:*\n")
    assert master.sites == SitesSettings(listen="tcp://127.0.0.1:*")


@pytest.mark.parametrize(
    ("section", "found"),
    [("broker:\n", "broker"), (f'masters: [{{address: "tcp://m:1", key: "{KEY}"}}]\n', "masters")],
    ids=["broker", "masters"],
)
def test_a_master_with_what_only_a_gateway_has_is_told_to_be_a_relay(section: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="a master has sites") as error:
        for_role("master", tmp_path, f"name: central\n{section}")
    assert (error.value.where, error.value.found) == (f"{tmp_path}/station.yaml", found)
    assert "run it as a gateway with a sites: section" in str(error.value.hint)


def test_a_master_that_is_listed_twice_is_named_with_both_places(tmp_path: Path) -> None:
    entries = "\n".join(f'- {{address: "tcp://{host}:1", key: "{KEY}"}}' for host in ("m", "n", "m"))
    with pytest.raises(ConfigInvalid, match="there twice") as error:
        for_role("gateway", tmp_path, f"name: lisbon\nmasters:\n{entries}\n")
    assert error.value.where == f"{tmp_path}/station.yaml: masters[2].address"
    assert error.value.found == "tcp://m:1, as in masters[0].address"


@pytest.mark.parametrize("role", ["master", "gateway"])
def test_a_file_that_is_not_there_is_named(role: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as error:
        settings_for(role, tmp_path / "absent.yaml")
    assert error.value.where == f"{tmp_path}/absent.yaml"
