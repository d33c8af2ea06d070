"""The only connection that writes. What is asked for at the same time is committed together (group commit).

A call costs a hand-over between threads whatever it does, and a commit costs a flush of the disk; so the writer takes
everything that came in during the last commit, writes it in one transaction, and wakes all who waited. It does not
know what the statements mean.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import aiosqlite

from device_agent.errors import StationFailed
from device_agent.parts import Part
from gateway.store.damage import StoreDamaged, is_damage, mark

log = logging.getLogger(__name__)

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Row]]
"""SQL and the rows to run it with."""

CLOSE_SECONDS = 10.0
WIPE_AGAIN_SECONDS = 1.0
WIPE_WAIT_MILLISECONDS = 100
WIPE_COMMITS = 100
"""Under a load that never ends, commits between two attempts to empty the log of what was wiped."""
FAST = "secure_delete=FAST"
UNWRITABLE = (sqlite3.Error, OverflowError, UnicodeEncodeError)
"""How a commit fails; the last two are for a number or a text that no column holds."""


class StoreFailed(StationFailed):
    """Nothing of what was asked for is on disk."""

    default_id = "store.failed"


@dataclass
class _Unit:
    statements: Sequence[Statement]
    done: asyncio.Future[None]
    wipes: bool = False


class Writer(Part):
    """Takes units of statements; each unit is on disk as a whole, or not at all."""

    name: ClassVar[str] = "store"
    drain_seconds: ClassVar[float] = 10.0

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[_Unit] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._connection: aiosqlite.Connection | None = None
        self._damage: StoreDamaged | None = None
        self._unwiped = False
        self._wipe_at = 0
        self.commits = 0
        self.failures = 0

    async def open(self) -> None:
        """Open the file, which ``migrate`` has prepared."""
        self._connection = await aiosqlite.connect(self._path, isolation_level=None)
        # What is deleted is overwritten where that costs no further write; see ``wipes`` for what must be gone.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000", "cache_size=-16000", FAST):
            await self._connection.execute(f"PRAGMA {pragma}")
        self.spawn(self._run(), "commit")

    async def commit(self, statements: Sequence[Statement], *, wipes: bool = False) -> None:
        """Return when the statements are on disk. Raises ``StoreFailed`` when they are not and will not be.

        ``wipes``: they overwrite secrets, which the write-ahead log still has; it is emptied as soon as no reader needs
        it (https://www.sqlite.org/pragma.html#pragma_wal_checkpoint).
        """
        unit = _Unit(
            [statement for statement in statements if statement[1]],
            asyncio.get_running_loop().create_future(),
            wipes,
        )
        if not unit.statements:
            return
        if self._damage is not None:
            raise StoreFailed("the store is damaged, and the station stops")
        self._waiting.append(unit)
        self._idle.clear()
        self._wake.set()
        # Not bounded here: the commit itself is (busy_timeout), and giving up early would leave its fate unknown.
        await unit.done

    async def drain(self) -> None:
        """Wait until everything asked for is written."""
        await self._idle.wait()

    async def close(self) -> None:
        """Close the file; whoever still waits is told that nothing was written."""
        self._give_up(self._waiting)
        if self._connection is not None:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.close()

    def _give_up(self, units: Sequence[_Unit]) -> None:
        for unit in units:
            if not unit.done.done():
                unit.done.set_exception(StoreFailed("the station stopped before the commit"))
        self._waiting = []
        self._idle.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            units, self._waiting = self._waiting, []
            try:
                if units and not await self._attempt(units) and len(units) > 1:
                    # One bad unit must not take the others with it: try each alone.
                    for unit in units:
                        await self._attempt([unit])
            except asyncio.CancelledError:
                self._waiting = [unit for unit in units if not unit.done.done()] + self._waiting
                raise
            except StoreDamaged as damage:
                self._damage = damage
                self._give_up([*units, *self._waiting])
                raise
            if self._unwiped and (not self._waiting or self.commits >= self._wipe_at):
                await self._wipe_log()
            if not self._waiting:
                self._idle.set()

    async def _wipe_log(self) -> None:
        assert self._connection is not None
        self._wipe_at = self.commits + WIPE_COMMITS
        try:
            await self._connection.execute(f"PRAGMA busy_timeout={WIPE_WAIT_MILLISECONDS}")
            rows = await self._connection.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
            await self._connection.execute("PRAGMA busy_timeout=10000")
            self._unwiped = any(row[0] for row in rows)
        except sqlite3.Error as error:
            log.error("the log still holds what was wiped, tried again error=%s", error)
        if self._unwiped and not self._waiting:
            self.spawn(self._wake_later(), "wipe again")

    async def _wake_later(self) -> None:
        await asyncio.sleep(WIPE_AGAIN_SECONDS)
        self._wake.set()

    async def _attempt(self, units: list[_Unit]) -> bool:
        assert self._connection is not None
        try:
            await self._connection.execute("BEGIN IMMEDIATE")
            try:
                for sql, rows in _merged(units):
                    await self._connection.executemany(sql, rows)
                await self._connection.execute("COMMIT")
            except UNWRITABLE:
                if self._connection.in_transaction:
                    await self._connection.execute("ROLLBACK")
                raise
        except UNWRITABLE as error:
            if is_damage(error):
                # This process ends with it, and the next one salvages; nobody is told that anything was written.
                raise mark(self._path, error) from None
            if len(units) == 1 and not units[0].done.done():
                self.failures += 1
                log.error("commit failed error=%s", error)
                units[0].done.set_exception(
                    StoreFailed(
                        "the store could not be written",
                        where=str(self._path),
                        found=str(error),
                        hint=f"look at the free space: df -h {self._path.parent}",
                    )
                )
            return False
        self.commits += 1
        self._unwiped = self._unwiped or any(unit.wipes for unit in units)
        for unit in units:
            if not unit.done.done():
                unit.done.set_result(None)
        return True


def _merged(units: list[_Unit]) -> list[tuple[str, list[Row]]]:
    """Statements in order, neighbours with the same SQL joined, since each call is a hand-over between threads."""
    merged: list[tuple[str, list[Row]]] = []
    for unit in units:
        for sql, rows in unit.statements:
            if merged and merged[-1][0] == sql:
                merged[-1][1].extend(rows)
            else:
                merged.append((sql, list(rows)))
    return merged
