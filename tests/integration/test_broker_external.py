"""A broker that somebody else runs: the station writes its rules, and tells it to read them."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from device_agent.errors import ConfigInvalid
from device_agent.mqtt import BrokerAddress
from device_agent.parts import leaves
from device_agent.trust.keys import SigningKey, did_text
from gateway.broker import external
from gateway.broker.external import ExternalBroker
from gateway.broker.login import lets_in
from gateway.broker.passwords import hash_password
from tests.peers.broker import free_ports, mosquitto
from tests.peers.visitor import visit
from tests.peers.waiting import until

ADA = did_text(SigningKey(bytes(32)).did)


def told(folder: Path, username: str | None = "station", password: str | None = "its own") -> ExternalBroker:
    port, enroll_port = free_ports(2)
    return ExternalBroker(
        site="lisbon",
        state_dir=folder,
        host="127.0.0.1",
        port=port,
        enroll_port=enroll_port,
        pid_file=folder / "pid",
        username=username,
        password=password,
    )


@asynccontextmanager
async def theirs(settings: Path, pid_file: Path) -> AsyncIterator[Process]:
    """A mosquitto that runs with the settings the station wrote."""
    own = settings.with_name("own.conf")
    # As root mosquitto would become a user who may not look into this folder.
    own.write_text(settings.read_text() + ("user root\n" if os.geteuid() == 0 else ""))
    process = await asyncio.create_subprocess_exec(mosquitto(), "-c", str(own), stderr=DEVNULL)
    pid_file.write_text(f"{process.pid}\n")
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def test_a_broker_that_runs_with_what_was_written_keeps_the_rules_and_hears_of_changes(tmp_path: Path) -> None:
    async with told(tmp_path) as part:
        folder = tmp_path / "broker"
        async with theirs(folder / "mosquitto.conf", tmp_path / "pid"):
            own = part.station_address()
            assert own == BrokerAddress("127.0.0.1", part.port, username="station", password="its own")
            await until(lambda: lets_in(own), what="the broker lets the station in")
            device = BrokerAddress(port=part.port, username=ADA, password="ada")
            assert (await visit(device, ADA)).code == 5
            await part.add_user(ADA, hash_password("ada"))
            await until(lambda: lets_in(device), what="the broker lets the device in")
            inside = await visit(device, ADA)
            await inside.subscribe("os/lisbon/trust")
            master = await visit(own, "station")
            await master.subscribe("os/lisbon/#")
            await inside.publish(f"os/lisbon/d/{ADA}/up/f", b"said")
            await until(lambda: master.heard == [(f"os/lisbon/d/{ADA}/up/f", b"said")], what="the message")
            await master.publish("os/lisbon/trust", b"bundle", retain=True)
            await until(lambda: inside.heard == [("os/lisbon/trust", b"bundle")], what="the trust topic")
            await part.set_enrollment(True)
            joining = BrokerAddress(port=part.enroll_port, username="enroll", password="enroll")
            await until(lambda: lets_in(joining), what="the enrollment door is open")
            await part.set_users({})
            await until(lambda: inside.gone, what="the end of the connection")


async def test_its_files_are_for_the_folders_group_and_nobody_else(tmp_path: Path) -> None:
    async with told(tmp_path) as part:
        await part.add_user(ADA, hash_password("ada"))
        files = list((tmp_path / "broker").iterdir())
        assert {file.name for file in files} == {
            "mosquitto.conf",
            "devices.acl",
            "devices.passwords",
            "enrollment.acl",
            "enrollment.passwords",
        }
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o640}
        assert {file.stat().st_gid for file in files} == {(tmp_path / "broker").stat().st_gid}


async def test_a_process_that_is_no_broker_gets_no_signal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A process id that was left behind; this test would not survive the signal."""
    (tmp_path / "pid").write_text(str(os.getpid()))
    async with told(tmp_path) as part:
        await part.add_user(ADA, hash_password("ada"))
    assert "no broker to be told" in caplog.text


async def test_a_broker_that_does_not_run_is_no_failure(tmp_path: Path) -> None:
    async with told(tmp_path) as part:
        await part.add_user(ADA, hash_password("ada"))
        assert ADA in (tmp_path / "broker" / "devices.passwords").read_text()


async def test_a_process_id_that_cannot_be_read_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pid").write_text("none of this")
    async with told(tmp_path):
        await until(lambda: "cannot be told" in caplog.text, what="the error in the log")


async def test_without_a_user_the_station_comes_as_nobody_and_stands_in_no_file(tmp_path: Path) -> None:
    async with told(tmp_path, username=None, password=None) as part:
        assert part.station_address() == BrokerAddress("127.0.0.1", part.port)
        assert part.status()["mode"] == "external"
        assert (tmp_path / "broker" / "devices.passwords").read_text() == ""


@pytest.mark.parametrize(
    ("username", "where"), [("two\nlines", "broker.username"), ("a:b", "broker.username"), ("", "broker.username")]
)
async def test_a_user_who_cannot_stand_in_a_password_file_stops_the_start(
    tmp_path: Path, username: str, where: str
) -> None:
    with pytest.raises(ExceptionGroup) as error:
        async with told(tmp_path, username=username):
            raise AssertionError("it started")
    (reason,) = leaves(error.value)
    assert isinstance(reason, ConfigInvalid)
    assert reason.where == where


async def test_a_folder_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "broker").write_text("a file")
    with pytest.raises(ExceptionGroup) as error:
        async with told(tmp_path):
            raise AssertionError("it started")
    (reason,) = leaves(error.value)
    assert isinstance(reason, ConfigInvalid)
    assert reason.where == "broker.rules_dir"


async def test_a_second_signal_follows_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may have come while the broker was reading."""
    monkeypatch.setattr(external, "SIGNAL_AGAIN_SECONDS", 0.01)
    signals: list[Path] = []
    monkeypatch.setattr(ExternalBroker, "_signal", staticmethod(signals.append))
    async with told(tmp_path):
        await until(lambda: len(signals) == 2, what="two signals for the first files")


async def test_a_number_left_behind_of_a_program_with_another_name_is_no_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = "import pathlib, sys; pathlib.Path('/proc/self/comm').write_bytes(b'caf\\xe9'); print(flush=True); input()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", named, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        (tmp_path / "pid").write_text(f"{process.pid}\n")
        async with told(tmp_path) as part:
            await part.add_user(ADA, hash_password("ada"))
        assert "no broker to be told of new rules" in caplog.text
        assert process.returncode is None
    finally:
        process.kill()
        await process.wait()
