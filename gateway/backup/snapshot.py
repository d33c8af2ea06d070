"""A copy of a station's store as it is at one moment, while the station goes on writing; without what must stay behind.

SQLite's backup interface copies page by page inside one read transaction, so the writer is not held up and what it
commits meanwhile is not in the copy. What is deleted from a SQLite file stays readable in its free pages; so the copy
is written anew as a whole after that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from device_agent.errors import ConfigInvalid, StationFailed

Progress = Callable[[str, float], None]
"""Told what is being done, and which part of it is done."""

PAGES: Final = 512
BUSY_MS: Final = 10_000

_LEFT_BEHIND: Final = {
    # Recorded traffic stays shut to whoever opens a backup, and an opening without its prekey is worth nothing.
    "prekeys": "DELETE FROM prekeys",
    "openings": "DELETE FROM openings",
    # What was said to all devices stays shut too; a restored station counts on from the highest epoch with a new key.
    "epochs": "UPDATE epochs SET key = zeroblob(32)",
    # A token may have been used after this moment, and a restored store would let it be used once more.
    "join_tokens": "UPDATE join_tokens SET secret = x'',"
    " revoked = CASE WHEN left > 0 THEN coalesce(revoked, :now) ELSE revoked END",
}
"""By table, since a store of an older release may lack some."""


def take_snapshot(store: Path, folder: Path, now: float, progress: Progress) -> Path:
    """A copy of a store, in a folder of the caller. Raises ``ConfigInvalid`` where there is none, ``StationFailed``."""
    raw, clean = folder / "raw.sqlite", folder / "clean.sqlite"
    if not store.is_file():
        raise ConfigInvalid(
            "there is no store to back up",
            where=str(store),
            found="nothing",
            allowed="the store of a station that has run",
            hint="start the gateway once, or give the settings it runs with: --config FILE",
        )
    try:
        _copy(store, raw, progress)
        with closing(sqlite3.connect(raw, isolation_level=None)) as copy:
            # Nobody needs this file after a crash.
            for pragma in ("journal_mode=MEMORY", "synchronous=OFF", "secure_delete=ON"):
                copy.execute(f"PRAGMA {pragma}")
            present = {name for (name,) in copy.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            for table, statement in _LEFT_BEHIND.items():
                if table in present:
                    copy.execute(statement, {"now": now} if ":now" in statement else {})
            progress("writing the copy", 0.0)
            copy.execute("VACUUM INTO ?", (str(clean),))
    except sqlite3.Error as error:
        raise StationFailed(
            "the store cannot be copied",
            error_id="backup.store",
            where=str(store),
            found=str(error),
            allowed="a sound store, and twice its size free beside it",
            hint=f"df -h {store.parent}; ls -l {store}*",
        ) from None
    raw.unlink()
    return clean


def schema_of(store: Path) -> int:
    """The number of the newest schema step in a store."""
    with closing(sqlite3.connect(store)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def devices_of(store: Path) -> dict[str, int]:
    """How many devices a store knows, by the state of their enrollment."""
    with closing(sqlite3.connect(store)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'enrolled'").fetchone():
            return {}
        return dict(connection.execute("SELECT state, count(*) FROM enrolled GROUP BY state ORDER BY state"))


def _copy(store: Path, raw: Path, progress: Progress) -> None:
    address = f"file:{quote(str(store))}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True, isolation_level=None)) as source,
        closing(sqlite3.connect(raw, isolation_level=None)) as target,
    ):
        source.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        # A read transaction of our own: without it each commit of the station would begin the copy anew.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        target.execute("PRAGMA synchronous=OFF")

        def told(_: int, remaining: int, total: int) -> None:
            progress("copying the store", 1 - remaining / max(total, 1))

        source.backup(target, pages=PAGES, progress=told)
        source.execute("ROLLBACK")
