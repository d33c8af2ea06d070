"""What a damaged store is: how SQLite says so, the mark a running station leaves, and what became of it in words.

A station that meets damage while it runs leaves a mark beside the file and ends; its next start salvages (``opening``).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
from pathlib import Path

import msgspec
from msgspec import Struct

from device_agent.errors import StationFailed

log = logging.getLogger(__name__)

_PRIMARY = frozenset({11, 26})
"""SQLITE_CORRUPT and SQLITE_NOTADB, whatever their extension (https://www.sqlite.org/rescode.html)."""

_READING = frozenset({266, 522, 8202, 8458})
"""SQLITE_IOERR_READ, _SHORT_READ, _DATA and _CORRUPTFS: the disk does not give back what was written."""

_FULL = 13
_IO = 10
_MAPPING = frozenset({4874, 5386})
"""SQLITE_IOERR_SHMSIZE and _SHMMAP: no room for the index of the log."""

ROW = "damage"
"""Its key in the table ``station``."""


class StoreDamaged(StationFailed):
    """The store is damaged: this process ends, and the next one begins with what can be read of it."""

    default_id = "store.damaged"


class TableFound(Struct, frozen=True):
    """What was found of one table; ``unreadable`` counts the places where something was missing."""

    rows: int
    unreadable: int = 0


class Damage(Struct, kw_only=True):
    """What happened to a store, kept in the one that took its place."""

    at: float
    reason: str
    aside: str
    """Where the damaged file is now."""
    tables: dict[str, TableFound] = {}
    log_lost: bool = False
    """Commits in the write-ahead log were lost."""
    schema_rebuilt: bool = False
    epoch_renewed: bool = False
    missing: dict[str, int] = {}
    """By class, items of the spool that were accepted and are neither delivered nor dropped nor found."""
    told: bool = False
    compared: bool = False
    """Whether the salvaged store was compared with its witness since."""

    @property
    def incomplete(self) -> list[str]:
        """The tables of which something is missing."""
        return sorted(name for name, found in self.tables.items() if found.unreadable)

    def words(self) -> str:
        """In one sentence."""
        rows = sum(found.rows for found in self.tables.values())
        parts = [f"{rows} rows were salvaged from {Path(self.aside).name} ({self.reason})"]
        if self.incomplete:
            parts.append("something is missing in " + ", ".join(self.incomplete))
        if self.log_lost:
            parts.append("the last commits before the damage are missing")
        if self.missing:
            parts.append(
                "missing on the way up: " + ", ".join(f"{count} {name}" for name, count in sorted(self.missing.items()))
            )
        return "; ".join(parts)


def encode(damage: Damage) -> str:
    """As it stands in its row."""
    return msgspec.json.encode(damage).decode()


def decode(text: str) -> Damage | None:
    """From its row; None for one that nobody can read."""
    try:
        return msgspec.json.decode(text, type=Damage)
    except msgspec.DecodeError:
        return None


def is_damage(error: BaseException) -> bool:
    """Whether an error of SQLite means that the file is not what was written to it."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and (code & 0xFF in _PRIMARY or code in _READING)


def is_full(error: BaseException) -> bool:
    """Whether an error of SQLite means that the disk has no room."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and (code & 0xFF == _FULL or code in _MAPPING)


def is_io_error(error: BaseException) -> bool:
    """Whether an error of SQLite, or of the machine, means that the disk did not read or write."""
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, OSError):
        return error.errno == errno.EIO
    return isinstance(error, sqlite3.Error) and code is not None and code & 0xFF == _IO and code not in _MAPPING


def mark_path(path: Path) -> Path:
    """Where a running station says that its store is damaged."""
    return path.with_name(path.name + ".is-damaged")


def mark(path: Path, error: BaseException) -> StoreDamaged:
    """Leave the mark, and make the error that ends the process."""
    log.critical("the store is damaged path=%s error=%s", path, error)
    # On a full or dying disk the file itself will show it again.
    with contextlib.suppress(OSError):
        descriptor = os.open(
            mark_path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "w") as file:
            file.write(str(error))
            file.flush()
            os.fsync(file.fileno())
    return StoreDamaged(
        "the store is damaged",
        where=str(path),
        found=str(error),
        hint="start the station again: it sets the file aside and goes on with what can be read of it",
    )
