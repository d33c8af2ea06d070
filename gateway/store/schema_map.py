"""Where each table of a store begins, kept beside it: the page that says so inside is the one most often written.

With it a file is read whose first page, or whose schema, is gone: a first page is made anew, with the tables where they
were (https://www.sqlite.org/fileformat2.html).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from device_agent.durable import read_regular
from gateway.store import write_ahead_log

HEADER_BYTES: Final = 100
MAGIC: Final = b"SQLite format 3\0"


class SchemaMap(Struct, frozen=True):
    """What the first pages of a store say."""

    page_size: int
    version: int
    entries: list[tuple[str, str, str, int, str | None]]


def map_path(path: Path) -> Path:
    """Where it stands."""
    return path.with_name(path.name + ".map")


def keep(path: Path) -> None:
    """Write the map of a sound store, when it has changed."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as store:
        found = SchemaMap(
            store.execute("PRAGMA page_size").fetchone()[0],
            store.execute("PRAGMA user_version").fetchone()[0],
            store.execute("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema ORDER BY rowid").fetchall(),
        )
    body = msgspec.json.encode(found)
    target = map_path(path)
    with contextlib.suppress(OSError):
        if target.exists() and read_regular(target) == body:
            return
        fresh = target.with_name(target.name + ".new")
        fresh.write_bytes(body)
        fresh.chmod(0o600)
        fresh.replace(target)


def read(path: Path) -> SchemaMap | None:
    """The map of a store; None when there is none that can be read."""
    try:
        return msgspec.json.decode(read_regular(map_path(path)), type=SchemaMap)
    except (OSError, msgspec.DecodeError):
        return None


def rebuild(damaged: Path, known: SchemaMap) -> None:
    """Put a first page into a damaged file by which its tables are found; the one before is kept beside it."""
    size = known.page_size
    log = damaged.with_name(damaged.name + "-wal")
    with damaged.open("r+b") as file:
        kept = damaged.with_name(damaged.name + ".first-page")
        if not kept.exists():
            kept.write_bytes(file.read(size))
        if log.exists():
            # Here and not by SQLite: the log may hold another first page.
            for page, body in write_ahead_log.committed(log):
                file.seek((page - 1) * size)
                file.write(body)
            log.rename(log.with_name(log.name.removesuffix("-wal") + ".log"))
        pages = max(-(-file.seek(0, os.SEEK_END) // size), 1)
        file.truncate(pages * size)
        file.seek(0)
        file.write(_first_page(size, pages, known.version))
        file.flush()
        os.fsync(file.fileno())
    with contextlib.closing(sqlite3.connect(damaged, isolation_level=None)) as store:
        for pragma in ("writable_schema=ON", "journal_mode=OFF", "synchronous=OFF"):
            store.execute(f"PRAGMA {pragma}")
        store.execute("BEGIN")
        store.executemany(
            "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES (?, ?, ?, ?, ?)", known.entries
        )
        store.execute("COMMIT")


def _first_page(size: int, pages: int, version: int) -> bytes:
    header = MAGIC + struct.pack(
        ">HBBBBBB12I20xII",
        size if size < 65536 else 1,
        *(1, 1, 0, 64, 32, 32),
        1,
        pages,
        *(0, 0),
        1,
        *(4, 0, 0, 1),
        version,
        *(0, 0),
        1,
        3_040_001,
    )
    leaf = struct.pack(">BHHHB", 0x0D, 0, 0, size % 65536, 0)
    return (header + leaf).ljust(size, b"\0")
