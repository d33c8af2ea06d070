"""What disk, broker, trust and uplink say of a station that does not run."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.broker import start
from gateway.checks import broker, disk, trust, uplink
from gateway.config import BrokerSettings, MasterEntry
from gateway.fleet.station_files import Joined, KnownMaster, StationFiles
from tests.peers.broker import free_port
from tests.peers.rope import new_keys
from tests.unit.gateway.checks.conftest import a_box


def program(folder: Path, said: str) -> str:
    path = folder / "mosquitto"
    path.write_text(f"#!/bin/sh\necho '{said}'\nexit 3\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


# --- the broker's program --------------------------------------------------------------------------------------------


def test_without_mosquitto_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "find_mosquitto", lambda: None)
    (finding,) = broker.at_rest(a_box(tmp_path, broker=BrokerSettings()))
    assert (finding.severity, finding.finding) == ("error", "mosquitto is not installed, and broker.mode is managed")
    assert "does not start" in finding.meaning
    assert finding.fix.startswith("apt install mosquitto")


@pytest.mark.parametrize(
    ("said", "severity"),
    [
        ("mosquitto version 1.6.9", "error"),
        ("mosquitto version 2.0.11", "ok"),
        ("mosquitto version 2.1", "ok"),
        ("hello", "ok"),
    ],
)
def test_a_mosquitto_that_is_too_old_is_told(
    said: str, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(tmp_path, said)
    monkeypatch.setattr(broker, "find_mosquitto", lambda: path)
    (finding,) = broker.at_rest(a_box(tmp_path, broker=BrokerSettings()))
    assert finding.severity == severity
    if severity == "error":
        assert finding.finding == f"{path} is mosquitto 1.6, needed is 2.0 or newer"
        assert (bool(finding.meaning), finding.fix.startswith("apt install mosquitto")) == (True, True)


@pytest.mark.parametrize("mode", ["external", "embedded"])
def test_a_broker_that_is_not_ours_to_start_is_not_looked_for(mode: Any, tmp_path: Path) -> None:
    assert broker.at_rest(a_box(tmp_path, broker=BrokerSettings(mode=mode))) == []
    assert broker.at_rest(a_box(tmp_path, role="master")) == []


def test_the_mosquitto_of_this_machine_is_new_enough(tmp_path: Path) -> None:
    assert start.find_mosquitto() is not None
    (finding,) = broker.at_rest(a_box(tmp_path, broker=BrokerSettings()))
    assert finding.severity == "ok"


# --- trust -----------------------------------------------------------------------------------------------------------


def test_a_station_without_keys_is_told_to_join_and_gets_none_by_looking(tmp_path: Path) -> None:
    box = a_box(tmp_path)
    (finding,) = trust.at_rest(box)
    assert (finding.severity, finding.finding) == ("warning", "nobody vouches for this station yet")
    assert finding.fix.startswith("sudo outstation gateway join")
    assert not box.state_dir.exists()
    (finding,) = trust.at_rest(a_box(tmp_path, role="master"))
    assert finding.fix.startswith("outstation master init")


# --- the way to the masters ------------------------------------------------------------------------------------------


def masters(*ports: int) -> list[MasterEntry]:
    return [MasterEntry(address=f"tcp://127.0.0.1:{port}", key=new_keys().public) for port in ports]


def test_masters_that_cannot_be_reached_are_told(tmp_path: Path) -> None:
    away = free_port()
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        (finding,) = uplink.at_rest(a_box(tmp_path, masters=masters(port, away)))
        assert (finding.severity, finding.about) == ("warning", f"tcp://127.0.0.1:{away}")
        assert finding.finding.startswith(f"no way to tcp://127.0.0.1:{away}: ")
        assert "work on by itself" in finding.meaning
        assert "ip route get 127.0.0.1" in finding.fix
        (fine,) = uplink.at_rest(a_box(tmp_path, masters=masters(port)))
        assert (fine.severity, fine.finding) == ("ok", f"tcp://127.0.0.1:{port} takes connections")


def test_the_masters_of_the_join_are_tried_too(tmp_path: Path) -> None:
    box, away = a_box(tmp_path), free_port()
    box.state_dir.mkdir()
    known = KnownMaster(f"tcp://127.0.0.1:{away}", new_keys().public)
    StationFiles(box.state_dir).write_joined(Joined(bytes(16), (known,)))
    (finding,) = uplink.at_rest(box)
    assert finding.about == known.address


def test_who_has_no_master_above_has_no_finding(tmp_path: Path) -> None:
    assert uplink.at_rest(a_box(tmp_path)) == []
    assert uplink.at_rest(a_box(tmp_path, role="master")) == []


# --- the disk --------------------------------------------------------------------------------------------------------


class Room(NamedTuple):
    total: int = 100 * 2**30
    used: int = 0
    free: int = 50 * 2**30


class Places(NamedTuple):
    f_files: int
    f_favail: int


def test_the_disk_of_a_folder_that_is_not_there_yet_is_that_of_the_one_around_it(tmp_path: Path) -> None:
    (finding, *_) = disk.at_rest(a_box(tmp_path / "deep" / "down"))
    assert str(tmp_path) in finding.finding


@pytest.mark.parametrize(
    ("places", "severity"),
    [(Places(0, 0), "ok"), (Places(1000, 30), "ok"), (Places(1000, 29), "warning"), (Places(1000, 0), "error")],
)
def test_a_disk_without_inodes_is_told(
    places: Places, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Room())
    monkeypatch.setattr(os, "statvfs", lambda _: places)
    found = disk.at_rest(a_box(tmp_path))
    assert found[-1].severity == severity
    if severity != "ok":
        assert found[-1].finding.startswith(f"{places.f_favail} of 1,000 inodes are left at ")
        assert "no file can be made" in found[-1].meaning
        assert found[-1].fix.startswith("du --inodes")
