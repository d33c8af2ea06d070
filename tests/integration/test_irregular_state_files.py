"""A FIFO in the place of a file that a program reads at its start: the start fails with an error, and does not hang."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from device_agent.clock import Clock
from device_agent.custom.modules import STATE as RELEASES
from device_agent.custom.modules import CustomModules
from device_agent.errors import ConfigInvalid
from device_agent.event_file import EventFile
from device_agent.identity import FILE as IDENTITY
from device_agent.identity import SEALING_FILE, IdentityFile
from device_agent.journal_file import FileJournal
from device_agent.outbox import JournalUnavailable
from device_agent.schedule.kept import KeptFile
from device_agent.standing import FILE as STATUS
from device_agent.standing import sentence
from device_agent.token_file import read_token
from device_agent.trust.release_list import Releases
from gateway.broker.tls import TlsAuthority
from gateway.engines.feed import Feed
from gateway.fleet.state_folder import at_rest
from gateway.fleet.station_files import StationFiles
from gateway.store.opening import open_store
from gateway.store.reserve import RESERVE_BYTES, Reserve
from gateway.store.witness import read_witness, witness_path
from gateway.upgrade import record
from upstream import curve
from upstream.salt import rsa_keys
from upstream.salt.pins import Pins

SECONDS = 30.0


def made_store(folder: Path) -> Path:
    path = folder / "station.sqlite"
    open_store(path, Clock())
    return path


def store_with(end: str) -> Callable[[Path], Any]:
    """Open a sound store of which one file is a FIFO."""

    def start(folder: Path) -> Any:
        path = folder / "station.sqlite"
        fifo = path.with_name(path.name + end)
        if end:
            fifo.unlink()
            made_store(folder)
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo)
        return open_store(path, Clock())

    return start


def reserve(folder: Path) -> int:
    kept = Reserve(folder)
    kept._look()
    kept._look()
    return (folder / "reserve").stat().st_size


def held(folder: Path) -> str:
    with at_rest(folder, ""):
        return "held"


def sealing_keys(folder: Path) -> Any:
    (folder / SEALING_FILE).unlink()
    identity = IdentityFile(folder).load_or_begin()
    (folder / SEALING_FILE).unlink(missing_ok=True)
    os.mkfifo(folder / SEALING_FILE)
    found = IdentityFile(folder).load()
    assert found is not None
    return found.did == identity.did


REFUSED = (ConfigInvalid, JournalUnavailable, OSError)
ANSWERS: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "station.sqlite": (store_with(""), ConfigInvalid),
    "station.sqlite-wal": (store_with("-wal"), ConfigInvalid),
    "station.sqlite-shm": (store_with("-shm"), ConfigInvalid),
    "station.sqlite.map": (store_with(".map"), str),
    "station.sqlite.witness": (store_with(".witness"), str),
    "station.sqlite.salvage": (store_with(".salvage"), str),
    "station.sqlite.is-damaged": (store_with(".is-damaged"), str),
    "reserve": (reserve, RESERVE_BYTES),
    "lock": (held, "held"),
    "curve.key": (lambda folder: curve.load_or_make(folder / "curve.key"), ConfigInvalid),
    "trust.keys": (lambda folder: StationFiles(folder).keys(), ConfigInvalid),
    "time-floor": (lambda folder: StationFiles(folder).floor(), ConfigInvalid),
    "broker-authority.pem": (lambda folder: TlsAuthority(folder / "broker-authority.pem", "lisbon").load(), OSError),
    "salt.key": (lambda folder: rsa_keys.load_or_make(folder / "salt.key", 2048), (ConfigInvalid, OSError)),
    record.FILE_NAME: (record.read, None),
    "cursor": (lambda folder: Feed(cast("Any", SimpleNamespace(folder=folder))), OSError),
    IDENTITY: (lambda folder: IdentityFile(folder).load(), ConfigInvalid),
    SEALING_FILE: (sealing_keys, True),
    "journal": (lambda folder: asyncio.run(FileJournal(folder / "journal").open()), JournalUnavailable),
    "events": (lambda folder: asyncio.run(EventFile(folder / "events").open()), JournalUnavailable),
    "schedule": (lambda folder: asyncio.run(KeptFile(folder / "schedule").load()), ConfigInvalid),
    RELEASES: (lambda folder: CustomModules(folder, lambda: None)._restored(), Releases),
    STATUS: (sentence, ""),
    "token": (lambda folder: read_token(folder / "token"), OSError),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_fifo_in_the_place_of_a_state_file_does_not_hang_the_start(name: str, tmp_path: Path) -> None:
    start, expected = ANSWERS[name]
    os.mkfifo(tmp_path / name)
    found = finished(lambda: start(tmp_path), tmp_path)
    if isinstance(expected, type | tuple):
        assert isinstance(found, expected)
    else:
        assert found == expected


def test_the_key_of_a_salt_master_that_is_a_fifo_is_refused(tmp_path: Path) -> None:
    pins = Pins(tmp_path, 4506)
    os.mkfifo(pins.place("192.0.2.1"))
    assert isinstance(finished(lambda: pins.known("192.0.2.1"), tmp_path), ConfigInvalid)


def test_the_witness_is_read_through_no_link(tmp_path: Path) -> None:
    store = made_store(tmp_path)
    assert read_witness(witness_path(store)) is not None
    witness_path(store).rename(tmp_path / "elsewhere")
    witness_path(store).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        read_witness(witness_path(store))


def finished(call: Callable[[], Any], folder: Path) -> Any:
    """What a call returned or raised; a call that hangs fails the test, and its thread is let go."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(call())
        except REFUSED as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        for fifo in (path for path in folder.rglob("*") if path.is_fifo()):
            os.close(os.open(fifo, os.O_RDWR))
        pytest.fail("it hangs")
    [result] = ended
    return result
