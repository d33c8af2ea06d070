"""Brings a store file to the newest schema, one numbered step at a time, each in its own transaction."""

from __future__ import annotations

import os
import secrets
import sqlite3
from importlib import resources
from pathlib import Path

from device_agent.errors import ConfigInvalid


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
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        wanted = steps()
        if version > wanted[-1][0]:
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
        connection.execute("INSERT OR IGNORE INTO station VALUES ('epoch', ?)", (secrets.token_hex(8),))
        (epoch,) = connection.execute("SELECT value FROM station WHERE key = 'epoch'").fetchone()
        return str(epoch)
    except (sqlite3.DatabaseError, OSError) as error:
        raise ConfigInvalid(
            "the store cannot be opened",
            where=str(path),
            found=str(error),
            allowed="a SQLite file written by this program, in a folder that this user may write",
            hint=f"check the permissions and the free space of {path.parent}",
        ) from None
    finally:
        if connection is not None:
            connection.close()


def _keep_private(path: Path) -> None:
    """Keys and tokens stand in it, so it is its owner's alone in whatever folder; SQLite's files beside it follow."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # Not opened: closing it would end the locks that this process may have on it (fcntl(2)).
        path.chmod(0o600)
