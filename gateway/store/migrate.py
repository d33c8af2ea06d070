"""Brings a store file to the newest schema, one numbered step at a time, each in its own transaction."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import sqlite3
from importlib import resources
from pathlib import Path
from typing import Final

from device_agent.errors import ConfigInvalid, StationFailed
from device_agent.start_errors import start_error
from gateway.store.damage import is_full, is_io_error

log = logging.getLogger(__name__)

OLDEST_READER: Final = 25
"""The oldest schema whose release may go on with a store of this one. Steps only add (tests/house/test_schema.py), so
that a release that is put back finds in the store all that the one after it accepted. The store says it itself, in the
number that SQLite keeps for its application (https://www.sqlite.org/pragma.html#pragma_application_id)."""

MOST_REWRITTEN_BYTES: Final = 64 << 20


def steps() -> list[tuple[int, str]]:
    """The numbered schema files, in order."""
    folder = resources.files("gateway.store") / "schema"
    found = [
        (int(entry.name.split(".")[0]), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found)


def migrate(path: Path) -> str:
    """Create or upgrade the file and return its epoch: a random name made once, which makes its sequences unique.

    Raises ``ConfigInvalid`` when the file is not a store, or is of a newer release.
    """
    connection = None
    try:
        _keep_private(path)
        connection = sqlite3.connect(path, isolation_level=None)
        # Before the first page is written, which says that the file can be made smaller.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        wanted = steps()
        if version > wanted[-1][0] and not _is_readable(connection, wanted[-1][0]):
            raise ConfigInvalid(
                "the store was written by a newer release",
                where=str(path),
                found=f"schema {version}",
                allowed=f"schema {wanted[-1][0]} or older",
                hint="install the newer release again, or restore the store from before the upgrade",
            )
        for number, script in wanted:
            if number > version:
                connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")
        _make_shrinkable(path, connection)
        if version <= wanted[-1][0]:
            connection.execute(f"PRAGMA application_id={OLDEST_READER}")
        else:
            log.warning("the store is of a newer release, which lets this one go on schema=%d", version)
        connection.execute("INSERT OR IGNORE INTO station VALUES ('epoch', ?)", (secrets.token_hex(8),))
        connection.execute(
            "INSERT OR IGNORE INTO store_commits (id, store, number, at, witnessed) VALUES (1, ?, 0, 0, 0)",
            (secrets.token_hex(8),),
        )
        (epoch,) = connection.execute("SELECT value FROM station WHERE key = 'epoch'").fetchone()
        return str(epoch)
    except (sqlite3.DatabaseError, OSError) as error:
        if is_full(error) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
            # Not a matter of settings: the next start may find room.
            raise StationFailed(
                "the disk is full",
                error_id="store.disk_full",
                where=str(path),
                found=str(error),
                hint=f"make room: du -xh {path.parent} | sort -h | tail",
            ) from None
        if is_io_error(error):
            raise StationFailed(
                "the disk fails",
                error_id="store.disk_fails",
                where=str(path),
                found=str(error),
                hint="look at the disk: dmesg -T | tail -n 50",
            ) from None
        raise start_error(
            _system_error(error, path),
            "the store cannot be opened",
            where=str(path),
            found=str(error),
            allowed="a SQLite file written by this program, in a folder that this user may write",
            hint=f"check the permissions and the free space of {path.parent}; fuser -v {path}",
        ) from None
    finally:
        if connection is not None:
            connection.close()


def _is_readable(connection: sqlite3.Connection, newest: int) -> bool:
    """Whether the newer release that wrote a store says that a release with this newest schema may go on with it."""
    (oldest,) = connection.execute("PRAGMA application_id").fetchone()
    return bool(0 < oldest <= newest)


def _make_shrinkable(path: Path, connection: sqlite3.Connection) -> None:
    """A store of an older release keeps its size for ever; written anew, once, it gives back what is deleted."""
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
        return
    size = path.stat().st_size
    if size > MOST_REWRITTEN_BYTES:
        log.warning("the store is of an older release and keeps its size path=%s mebibytes=%d", path, size >> 20)
        return
    try:
        # In memory: keys are in it, and its temporary file would be in a folder of everybody.
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("VACUUM")
    except sqlite3.OperationalError as error:
        log.warning("the store keeps its size, tried again at the next start path=%s error=%s", path, error)


def _keep_private(path: Path) -> None:
    """Keys and tokens stand in it, so it is its owner's alone in whatever folder; SQLite's files beside it follow."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # Not opened: closing it would end the locks that this process may have on it (fcntl(2)).
        path.chmod(0o600)


def _system_error(error: sqlite3.DatabaseError | OSError, path: Path) -> OSError:
    """What the operating system would say: another program may hold the store, or its file system be read-only."""
    if isinstance(error, OSError):
        return error
    number = {
        sqlite3.SQLITE_BUSY: errno.EBUSY,
        sqlite3.SQLITE_LOCKED: errno.EBUSY,
        sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    }.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, 0)
    with contextlib.suppress(OSError):
        if not number and os.statvfs(path.parent).f_flag & os.ST_RDONLY:
            number = errno.EROFS
    return OSError(number, str(error))
