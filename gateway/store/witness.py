"""The witness of a store: a small file beside it that says how far the store has come. It is written and synced apart.

A store whose last commits were lost opens without an error, since SQLite takes what it finds. The witness shows the
loss: it is never ahead of a store that is whole. The file has two slots with a checksum each, written in turns, so that
a power cut tears one at most. A slot is the format's name, the length and the checksum of the body, and the body as
JSON. The file is written in full once and keeps its size, so that a later write needs no free block.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from device_agent.durable import open_regular, replace_private
from gateway.store.reckoning import STREAMS as TABLES

log = logging.getLogger(__name__)

SLOT_BYTES: Final = 4096
SLOTS: Final = 2
NAME: Final = b"outstation store witness 1\n"
CHECKSUM_BYTES: Final = 16
HEAD: Final = struct.Struct(f">{len(NAME)}sI{CHECKSUM_BYTES}s")
MOST_JOBS: Final = 100
"""So many open jobs are named, the newest first."""

_STREAMS: Final = tuple(table for tables in TABLES.values() for table in tables)
_LOWEST = "SELECT " + ", ".join(f"(SELECT min(sequence) FROM {table})" for table in _STREAMS)  # noqa: S608 - six names of this program


class Position(Struct, frozen=True, kw_only=True):
    """How far a store has come. Times are wall seconds."""

    store: str
    """The name of the store's file, from the table ``store_commits``."""
    commit: int
    """How many commits its writer has made."""
    at: float
    """When the last of them was made."""
    accepted: Mapping[str, int]
    delivered: Mapping[str, int]
    numbers: Mapping[str, tuple[int, int]]
    """By table of the spool: the highest number given out, and the highest below which nothing waits."""
    jobs: tuple[str, ...] = ()
    """Open jobs, the newest first."""
    closed: bool = False
    """Whether the station closed the store in order after this commit."""
    serial: int = 0
    """Counts the writes of the witness: the higher of two slots is the newer one."""


def witness_path(store: Path) -> Path:
    """Where the witness of a store is."""
    return store.with_name(f"{store.name}.witness")


def position(connection: sqlite3.Connection) -> Position:
    """How far an open store has come. Reads a few rows, however much waits."""
    name, number, at = connection.execute("SELECT store, number, at FROM store_commits").fetchone()
    ledger = connection.execute("SELECT class, accepted, delivered FROM ledger").fetchall()
    given = dict(connection.execute("SELECT name, seq FROM sqlite_sequence WHERE name LIKE 'spool\\_%' ESCAPE '\\'"))
    lowest = dict(zip(_STREAMS, connection.execute(_LOWEST).fetchone(), strict=True))
    numbers = {}
    for table in _STREAMS:
        top, low = given.get(table, 0), lowest[table]
        numbers[table] = (top, top if low is None else low - 1)
    jobs = connection.execute("SELECT jid FROM jobs WHERE closed IS NULL ORDER BY jid DESC LIMIT ?", (MOST_JOBS,))
    return Position(
        store=name,
        commit=number,
        at=at,
        accepted={name: accepted for name, accepted, _ in ledger},
        delivered={name: delivered for name, _, delivered in ledger},
        numbers=numbers,
        jobs=tuple(jid for (jid,) in jobs),
    )


def read_witness(path: Path) -> Position | None:
    """The newest slot that is whole; None where there is none. Raises ``OSError`` for a file that cannot be read."""
    try:
        with open_regular(path, follow=False) as file:
            body = file.read(SLOTS * SLOT_BYTES)
    except FileNotFoundError:
        return None
    found = [_slot(body[number * SLOT_BYTES : (number + 1) * SLOT_BYTES]) for number in range(SLOTS)]
    return max((each for each in found if each is not None), key=lambda each: each.serial, default=None)


def make_witness(path: Path, state: Position) -> None:
    """Write the whole file anew; it is on disk when this returns. Raises ``OSError``."""
    slots = sorted((1, 2), key=lambda serial: serial % SLOTS)
    replace_private(path, b"".join(_encoded(replace(state, serial=serial)) for serial in slots))


class WitnessFile:
    """The witness of a running station. Its writes may come from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._last: Position | None = None
        self._descriptor: int | None = None
        self.failing = ""
        """Why the last write failed; empty when it did not."""

    def write(self, state: Position) -> None:
        """Write and sync a slot, unless a newer state is in the file. A failure is kept in ``failing`` and logged."""
        with self._lock:
            if self._last is not None and (state.commit < self._last.commit or self._last.closed):
                return
            try:
                self._put(state)
            except OSError as error:
                if not self.failing:
                    log.error("the store's witness cannot be written path=%s error=%s", self._path, error)
                self.failing = str(error)
                self._close()
            else:
                self.failing = ""

    def close(self) -> None:
        """Close the file; nothing is written after that."""
        with self._lock:
            self._close()

    def _put(self, state: Position) -> None:
        if self._descriptor is None:
            found = read_witness(self._path)
            if found is None or found.store != state.store:
                make_witness(self._path, state)
                found = replace(state, serial=2)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            # An earlier run closed the store in order: that ends nothing in this one.
            self._last = replace(found, closed=False)
        assert self._last is not None
        fresh = replace(state, serial=self._last.serial + 1)
        os.pwrite(self._descriptor, _encoded(fresh), fresh.serial % SLOTS * SLOT_BYTES)
        os.fdatasync(self._descriptor)
        self._last = fresh

    def _close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def _encoded(state: Position) -> bytes:
    body = msgspec.json.encode(state)
    while HEAD.size + len(body) > SLOT_BYTES:
        state = replace(state, jobs=state.jobs[: len(state.jobs) // 2])
        body = msgspec.json.encode(state)
    return (HEAD.pack(NAME, len(body), _checksum(body)) + body).ljust(SLOT_BYTES, b"\0")


def _slot(slot: bytes) -> Position | None:
    if len(slot) < SLOT_BYTES:
        return None
    name, length, checksum = HEAD.unpack_from(slot)
    body = slot[HEAD.size : HEAD.size + length]
    if name != NAME or len(body) != length or checksum != _checksum(body):
        return None
    try:
        return msgspec.json.decode(body, type=Position)
    except msgspec.DecodeError:
        return None


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECKSUM_BYTES).digest()
