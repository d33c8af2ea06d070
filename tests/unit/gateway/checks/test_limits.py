"""What a check says when the station has run out of descriptors or memory: the limit, and nobody else."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
from pathlib import Path

import pytest

from device_agent.mqtt import BrokerAddress
from gateway.broker.login import answers
from gateway.checks import broker, disk, every, open_files, ports, station
from gateway.checks.every import look
from gateway.checks.finding import Facts, Finding
from gateway.config import BrokerSettings
from tests.peers.broker import free_port
from tests.peers.disk_faults import no_descriptors
from tests.unit.gateway.checks.conftest import Told, a_box

BROKER = {"mode": "managed", "host": "127.0.0.1", "port": 1884, "connected": False, "last_error": "Too many open files"}


async def test_without_descriptors_every_check_names_the_limit_and_none_the_broker(facts: Told, tmp_path: Path) -> None:
    facts.folder = str(tmp_path)
    facts.station["broker"] = dict(BROKER)
    facts.of_box = a_box(tmp_path, broker=BrokerSettings(mode="managed", host="127.0.0.1"))
    with no_descriptors(os.getpid()) as limit:
        found = await look(facts, [disk.check, broker.check, ports.check, open_files.check])
    said = {each.check: each for each in found if each.severity == "error"}
    words = f"all {limit:,} files that this process may open are open"
    assert said["limits"].finding == words
    assert "LimitNOFILE" in said["limits"].fix
    assert said["broker"].finding == f"not connected to the managed broker at 127.0.0.1:1884: {words}"
    assert "correct broker.host" not in said["broker"].fix
    assert "ports" not in said, "a port that could not be looked at is not said to be silent"
    assert not any("could not be made" in each.finding or "no address" in each.finding for each in found)
    assert sum(1 for each in found if each.check == "limits") == 1


async def test_a_check_that_meets_a_limit_is_not_called_broken(facts: Told, tmp_path: Path) -> None:
    async def for_want_of_memory(_: Facts) -> list[Finding]:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    async def behind_another(_: Facts) -> list[Finding]:
        try:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        except OSError as error:
            raise ValueError("it could not be kept") from error

    facts.of_box = a_box(tmp_path)
    found = await every.look(facts, [for_want_of_memory, behind_another])
    assert [(each.check, each.severity) for each in found] == [("limits", "error")] * 2
    assert found[0].finding == "no memory is left"
    assert found[1].finding.endswith("is read-only")


async def test_a_broker_is_not_ended_for_want_of_descriptors_of_the_station(tmp_path: Path) -> None:
    nobody = BrokerAddress(unix_socket=str(tmp_path / "none"), username="x", password="")
    assert not await answers(nobody)
    with no_descriptors(os.getpid()):
        assert await answers(nobody)


def test_a_station_that_runs_and_does_not_answer_is_no_stranger_at_its_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    box = a_box(tmp_path, broker=BrokerSettings(mode="managed", host="127.0.0.1", port=port, enroll_port=free_port()))
    box.state_dir.mkdir(exist_ok=True)
    lock = os.open(box.state_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with socket.create_server(("127.0.0.1", port)):
            taken = [each for each in ports.at_rest(box) if each.severity == "error"]
            assert [each.about for each in taken] == ["broker.port"], "nobody holds the folder: it may be anybody"
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert [each.severity for each in ports.at_rest(box)] == ["ok"]
            (finding,) = station.at_rest(box)
            assert f"process {os.getpid()} is the gateway, and does not answer" in finding.finding
            monkeypatch.setattr(station, "FULL_SHARE", 0.0)
            (finding,) = station.at_rest(box)
            assert re.search(r"it has \d+ of the [\d,]+ files open", finding.finding)
    finally:
        os.close(lock)


def test_a_stranger_at_a_port_is_told_also_while_the_station_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    box = a_box(tmp_path, broker=BrokerSettings(mode="managed", host="127.0.0.1", port=port, enroll_port=free_port()))
    monkeypatch.setattr(ports, "runs", lambda _: True)
    with socket.create_server(("127.0.0.1", port)):
        assert any(f"port {port} (broker.port) is taken by" in each.finding for each in ports.at_rest(box))
