"""One SQLite connection in a thread of its own. A whole transaction crosses to it once, and its result once back.

The thread holds Python's lock only between two statements; while SQLite works or the disk flushes, the loop goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from device_agent.clock import Clock
from gateway.store.rows import Statement, joined, run

Result = TypeVar("Result")

UNWRITABLE = (sqlite3.Error, OverflowError, UnicodeEncodeError)
"""How a commit fails; the last two are for a number or a text that no column holds."""

PREPARED = 256
"""Statements that SQLite keeps ready."""

COUNT_COMMIT = "UPDATE store_commits SET number = number + 1, at = ?"
"""Part of each commit: by this number the witness shows that commits are gone."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of units: for each its error or none, and how many commits it took."""

    errors: Sequence[BaseException | None]
    commits: int


class Connection:
    """Takes work in order; each piece runs in the thread as a whole, whatever becomes of who asked for it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        # Never more in it than callers that wait: the writer asks for one thing after the other.
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="store", daemon=True)
        self._sqlite: sqlite3.Connection

    async def open(self, *pragmas: str) -> None:
        """Start the thread, which opens the file."""

        def connect() -> None:
            self._sqlite = sqlite3.connect(self._path, isolation_level=None, cached_statements=PREPARED)
            for pragma in pragmas:
                self._sqlite.execute(f"PRAGMA {pragma}")

        self._thread.start()
        await self._do(connect)

    async def execute(self, sql: str) -> list[Any]:
        """The rows of a statement by itself."""
        return await self.run(lambda sqlite: sqlite.execute(sql).fetchall())

    def write(self, units: Sequence[Sequence[Statement]]) -> Written:
        """In the thread: commit units together, or each alone when that fails.

        Raises what is not ``UNWRITABLE``; then what was not yet committed is not written.
        """
        try:
            self._commit(units)
        except UNWRITABLE as error:
            if len(units) == 1:
                return Written([error], 0)
        else:
            return Written([None] * len(units), 1)
        # One bad unit must not take the others with it: try each alone.
        errors: list[BaseException | None] = []
        for unit in units:
            try:
                self._commit([unit])
            except UNWRITABLE as error:
                errors.append(error)
            else:
                errors.append(None)
        return Written(errors, errors.count(None))

    async def empty_log(self, milliseconds: int) -> bool:
        """Bring the write-ahead log home and cut it to nothing; whether readers let go of it in time."""

        def checkpoint(sqlite: sqlite3.Connection) -> bool:
            (before,) = sqlite.execute("PRAGMA busy_timeout").fetchone()
            sqlite.execute(f"PRAGMA busy_timeout={milliseconds}")
            try:
                return all(row[0] == 0 for row in sqlite.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
            finally:
                sqlite.execute(f"PRAGMA busy_timeout={before}")

        return await self.run(checkpoint)

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do something in the thread."""
        return await self._do(lambda: work(self._sqlite))

    async def _do(self, work: Callable[[], Result]) -> Result:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def tell(result: Result | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]  # without an error there is a result
            else:
                future.set_exception(error)

        self.ask(work, tell)
        return await future

    def ask(self, work: Callable[[], Result], tell: Callable[[Result | None, BaseException | None], None]) -> None:
        """Have something done in the thread; ``tell`` is called in the loop with the result or the error."""
        loop = asyncio.get_running_loop()

        def do() -> None:
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - it is raised where it was asked for
                error = raised
            # A loop that has ended has nobody who could be told.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, result, error)

        self._work.put(do)

    async def close(self) -> None:
        """Finish what was asked for, close the file and end the thread."""
        if not self._thread.is_alive():
            return
        await self._do(lambda: self._sqlite.close() if hasattr(self, "_sqlite") else None)
        self._work.put(None)

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _commit(self, units: Sequence[Sequence[Statement]]) -> None:
        self._sqlite.execute("BEGIN IMMEDIATE")
        try:
            for sql, rows in joined(units):
                run(self._sqlite, sql, rows)
            self._sqlite.execute(COUNT_COMMIT, (self._clock.wall(),))
            self._sqlite.execute("COMMIT")
        except BaseException:
            if self._sqlite.in_transaction:
                self._sqlite.execute("ROLLBACK")
            raise
