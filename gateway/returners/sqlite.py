"""The returner ``sqlite3``: rows in the tables ``jids`` and ``salt_returns``, as Salt's documentation lays them out.

A return that comes again takes the place of the one before.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from functools import partial
from typing import Final

from gateway.jobs.record import called
from gateway.returners.own_thread import OwnThread
from gateway.returners.returned import NotReturned, Returned
from gateway.returners.settings import SqliteSettings

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS jids (jid TEXT PRIMARY KEY, load TEXT NOT NULL)",
    (
        "CREATE TABLE IF NOT EXISTS salt_returns (fun TEXT, jid TEXT, id TEXT, fun_args TEXT, date TEXT NOT NULL,"
        " full_ret TEXT NOT NULL, success TEXT NOT NULL)"
    ),
    "CREATE INDEX IF NOT EXISTS salt_returns_jid ON salt_returns (jid, id)",
)


class SqliteReturner:
    """Writes rows, each batch in one transaction."""

    most: int = 200

    def __init__(self, settings: SqliteSettings) -> None:
        self._settings = settings
        self._thread = OwnThread()

    async def send(self, returns: list[Returned]) -> None:
        """Raises ``NotReturned``."""
        try:
            await self._thread.call(partial(self._write, returns))
        except sqlite3.Error as error:
            raise NotReturned(f"{self._settings.database}: {error}") from None

    def _write(self, returns: list[Returned]) -> None:
        with contextlib.closing(
            sqlite3.connect(self._settings.database, timeout=self._settings.timeout, isolation_level=None)
        ) as database:
            for statement in TABLES:
                database.execute(statement)
            database.execute("BEGIN IMMEDIATE")
            try:
                for each in returns:
                    _put(database, each)
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")


def _put(database: sqlite3.Connection, returned: Returned) -> None:
    told, job = returned.fields(), returned.job
    load = {"jid": job.jid, "fun": called(job)[0], "arg": told["fun_args"], "tgt": job.tgt, "tgt_type": job.tgt_type}
    load["user"] = job.user
    database.execute("INSERT OR REPLACE INTO jids (jid, load) VALUES (?, ?)", (job.jid, json.dumps(load, default=str)))
    # Two sites may each have a device of one name.
    known = "SELECT rowid, full_ret FROM salt_returns WHERE jid = ? AND id = ?"
    for row, full in database.execute(known, (told["jid"], told["id"])).fetchall():
        if json.loads(full).get("site") == told["site"]:
            database.execute("DELETE FROM salt_returns WHERE rowid = ?", (row,))
    database.execute(
        "INSERT INTO salt_returns (fun, jid, id, fun_args, date, full_ret, success) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            told["fun"],
            told["jid"],
            told["id"],
            json.dumps(told["fun_args"], default=str),
            told["_stamp"],
            json.dumps(told, default=str),
            str(told["success"]),
        ),
    )
