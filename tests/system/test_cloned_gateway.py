"""Two gateways started from copies of one state folder; a master and a gateway that come back from an old copy."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.peers.broker import free_port
from tests.peers.database import look
from tests.peers.system import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


def findings(system: System, station: str, check: str) -> list[dict[str, Any]]:
    return [each for each in system.view(station, "/check")["findings"] if each["check"] == check]


def rows(system: System, station: str, sql: str) -> list[Any]:
    return look(system.state_of(station) / "station.sqlite", sql)


def fenced_as(system: System, station: str) -> str:
    return str(system.view(station)["uplink"]["last_error"])


def copy_of(system: System, name: str, original: str) -> None:
    """Another gateway with a copy of what the first one has, on the same machine."""
    shutil.copytree(system.state_of(original), system.state_of(name), ignore=shutil.ignore_patterns("lock", "*.sock"))
    settings = {**system._settings[original], "state_dir": str(system.state_of(name))}
    settings["socket"] = str(system.socket_of(name))
    settings["broker"] = {**settings["broker"], "port": free_port(), "enroll_port": free_port()}
    system._settings[name], system._roles[name] = settings, "gateway"


def test_one_of_two_copies_is_fenced_both_say_so_and_an_operator_decides(system: System) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    system.stop("lisbon")
    copy_of(system, "copy", "lisbon")
    system.restart("lisbon")
    system.connected("lisbon")

    system.restart("copy")
    system.until(lambda: fenced_as(system, "copy").startswith("fenced"), "the copy is fenced")
    assert "unfence" in fenced_as(system, "copy")
    assert [each["severity"] for each in findings(system, "copy", "twins")] == ["error"]
    refused = system.command("run", "*", "test.ping", station="copy", status=8)
    assert "this gateway is fenced and starts nothing" in refused.error
    system.until(lambda: findings(system, "lisbon", "twins"), "the one that is connected was told")
    assert findings(system, "central", "twins")[0]["fix"].endswith("outstation sites unfence lisbon")
    assert "fenced" in system.command("sites", "list", status=0).out
    assert "fenced" in system.command("sites", "show", "lisbon", status=0).out
    assert system.view("lisbon")["uplink"]["state"] == "connected"
    # A restart changes nothing: it is known by its mark, not by its connection.
    system.stop("lisbon")
    system.restart("lisbon")
    system.connected("lisbon")

    epoch = rows(system, "copy", "SELECT value FROM station WHERE key = 'epoch'")
    system.command("sites", "unfence", "lisbon", status=0)
    system.until(lambda: system.view("copy")["uplink"]["state"] == "connected", "the copy is let in")
    assert rows(system, "copy", "SELECT value FROM station WHERE key = 'epoch'") != epoch
    system.until(lambda: fenced_as(system, "lisbon").startswith("fenced"), "the other is fenced in its turn")
    assert system.command("sites", "unfence", "nowhere").status == 2


def test_a_master_from_an_old_backup_is_told_from_a_clone(system: System) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    system.stop("central")
    old = system.folder / "old"
    shutil.copytree(system.state_of("central"), old)
    for _ in range(2):
        system.restart("central")
        system.connected("lisbon")
        system.stop("central")
    shutil.rmtree(system.state_of("central"))
    shutil.move(old, system.state_of("central"))
    system.restart("central")
    system.connected("lisbon")
    told = "SELECT tag FROM events WHERE tag = 'outstation/master/central/rolled_back'"
    system.until(lambda: bool(rows(system, "lisbon", told)), "the gateway tells of it")
    assert findings(system, "lisbon", "twins") == []


def test_a_gateway_from_an_old_copy_of_its_folder_is_a_copy(system: System) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    system.stop("lisbon")
    old = system.folder / "old"
    shutil.copytree(system.state_of("lisbon"), old)
    system.restart("lisbon")
    system.connected("lisbon")
    system.stop("lisbon")
    shutil.rmtree(system.state_of("lisbon"))
    shutil.move(old, system.state_of("lisbon"))
    system.restart("lisbon")
    system.until(lambda: fenced_as(system, "lisbon").startswith("fenced"), "it is fenced")
    system.command("sites", "unfence", "lisbon", status=0)
    system.connected("lisbon")
    assert findings(system, "central", "twins") == []
