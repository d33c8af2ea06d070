"""The only place that writes. What is asked for at the same time is committed together (group commit).

A commit costs a flush of the disk and a hand-over between threads, whatever is in it; so everything that came in
during the last commit, or comes in the next turns of the loop, is written in one transaction, and then all who waited
are told. When more than that waits, the disk gets the next part first: it works on while they are told. The
writer does not know what the statements mean.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from device_agent.parts import Part
from gateway.store.connection import Connection, Written
from gateway.store.damage import is_damage, is_full, mark
from gateway.store.health import Failing, Health, named
from gateway.store.rows import Statement
from gateway.store.space import Space
from gateway.store.witness_keeper import WitnessKeeper

__all__ = ["Statement", "StoreFailed", "Writer"]

log = logging.getLogger(__name__)

STOPPED = "the station stopped before the commit"
CLOSE_SECONDS = 10.0
GATHER_SECONDS = 0.005
"""How long more units are waited for, while each turn of the loop still brings some. One that is alone never waits."""
ENOUGH_ROWS = 256
"""So many are written at once: what comes meanwhile overlaps with it, which is worth more than a larger group."""
MOST_ROWS = 2048
"""In one transaction, unless a unit is larger: nobody waits for more than that to be written."""
WIPE_AGAIN_SECONDS = 1.0
WIPE_WAIT_MILLISECONDS = 100
WIPE_COMMITS = 100
"""Under a load that never ends, commits between two attempts to empty the log of what was wiped."""
BUSY_MILLISECONDS = 10_000
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    f"busy_timeout={BUSY_MILLISECONDS}",
    "cache_size=-8000",
    # What is deleted is overwritten where that costs no further write; see ``wipes`` for what must be gone.
    "secure_delete=FAST",
)


class StoreFailed(StationFailed):
    """Nothing of what was asked for is on disk."""

    default_id = "store.failed"


@dataclass(slots=True)
class _Unit:
    statements: Sequence[Statement]
    rows: int
    done: asyncio.Future[None]
    wipes: bool


def _nobody() -> None:
    """Until somebody asks to be told."""


class Writer(Part):
    """Takes units of statements; each unit is on disk as a whole, or not at all."""

    name: ClassVar[str] = "store"
    drain_seconds: ClassVar[float] = 10.0

    def __init__(self, path: Path, on_full: Callable[[], None] = _nobody, clock: Clock | None = None) -> None:
        self._path = path
        self.health = Health(path, clock or Clock())
        self._on_full = on_full
        self._connection = Connection(path, clock or Clock())
        self._space = Space(self._connection, path)
        self.witness = WitnessKeeper(self._connection, path)
        self._waiting: deque[_Unit] = deque()
        self._rows = 0
        self._turn: asyncio.Handle | None = None
        self._writing: list[_Unit] = []
        self._opened = False
        self._ended = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._crash: BaseException | None = None
        self._unwiped = False
        self._wipe_at = 0
        self.commits = 0
        self.failures = 0

    async def open(self) -> None:
        """Open the file, which ``migrate`` has prepared."""
        await self._connection.open(*PRAGMAS)
        self._opened = True
        self.spawn(self._run(), "commit")
        self.spawn(self._space.run(), "space")
        self.spawn(self.witness.run(), "witness")

    async def commit(self, statements: Sequence[Statement], *, wipes: bool = False) -> None:
        """Return when the statements are on disk. Raises ``StoreFailed`` when they are not and will not be.

        ``wipes``: they overwrite secrets, which the write-ahead log still has; it is emptied as soon as no reader needs
        it (https://www.sqlite.org/pragma.html#pragma_wal_checkpoint).
        """
        rows = 0
        for _, some in statements:
            rows += len(some)
        if not rows:
            return
        if self._ended:
            raise StoreFailed(STOPPED)
        loop = asyncio.get_running_loop()
        unit = _Unit(statements, rows, loop.create_future(), wipes)
        self._waiting.append(unit)
        self._rows += rows
        self._idle.clear()
        if not self._writing:
            if self._rows >= ENOUGH_ROWS:
                self._write()
            elif self._turn is None:
                self._turn = loop.call_soon(self._gather, len(self._waiting), loop.time() + GATHER_SECONDS)
        # Not bounded here: the commit itself is (busy_timeout), and giving up early would leave its fate unknown.
        await unit.done

    def failing(self) -> Failing | None:
        """What keeps the store from being written now; None while nothing does."""
        return self.health.failing(waits=bool(self._writing))

    async def drain(self) -> None:
        """Wait until everything asked for is written."""
        await self._idle.wait()

    async def close(self) -> None:
        """Close the file; whoever still waits is told that nothing was written."""
        self._ended = True
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._opened and self._crash is None:
                    await self.witness.finish()
                # What the thread is at ends first, and those it is for are told.
                await self._connection.close()
        finally:
            for unit in (*self._writing, *self._waiting):
                if not unit.done.done():
                    unit.done.set_exception(StoreFailed(STOPPED))

    def _gather(self, before: int, end: float) -> None:
        """One turn of the loop later: write, or wait one more turn if this one brought more."""
        loop = asyncio.get_running_loop()
        if before < len(self._waiting) and loop.time() < end:
            self._turn = loop.call_soon(self._gather, len(self._waiting), end)
        else:
            self._write()

    def _write(self) -> None:
        """Hand what waits to the thread."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if self._writing or self._ended or not self._waiting:
            return
        rows = 0
        while self._waiting and (not rows or rows + self._waiting[0].rows <= MOST_ROWS):
            unit = self._waiting.popleft()
            rows += unit.rows
            self._writing.append(unit)
        self._rows -= rows
        statements = [unit.statements for unit in self._writing]
        self.health.handed()
        self._connection.ask(lambda: self._connection.write(statements), self._written)

    def _written(self, written: Written | None, crash: BaseException | None) -> None:
        """In the loop, after the thread has done what it was handed."""
        if written is None:
            # Nothing that a unit could have caused: it ends the part.
            self._crash, self._ended = crash, True
            self._wake.set()
            self._idle.set()
            return
        damage = next((error for error in written.errors if error is not None and is_damage(error)), None)
        if damage is not None:
            # It ends the part, and with it the process: the next one salvages.
            self._crash, self._ended = mark(self._path, damage), True
            self._wake.set()
        if any(error is not None and is_full(error) for error in written.errors):
            self._on_full()
        units, self._writing = self._writing, []
        self.commits += written.commits
        self.health.wrote(written.commits, [error for error in written.errors if error is not None])
        self._space.written()
        self.witness.written()
        self._unwiped = self._unwiped or any(u.wipes and not e for u, e in zip(units, written.errors, strict=True))
        if self._unwiped and (not self._waiting or self.commits >= self._wipe_at):
            self._wake.set()
        if self._rows >= ENOUGH_ROWS:
            self._write()
        for unit, error in zip(units, written.errors, strict=True):
            if unit.done.done():
                continue
            if error is None:
                unit.done.set_result(None)
            else:
                unit.done.set_exception(self._failed(error))
        if self._ended:
            self._idle.set()
            while self._waiting:
                unit = self._waiting.popleft()
                if not unit.done.done():
                    unit.done.set_exception(StoreFailed(STOPPED))
        elif not self._writing and self._waiting:
            # After those who were told just now have had their turn.
            loop = asyncio.get_running_loop()
            self._turn = loop.call_soon(self._gather, len(self._waiting), loop.time() + GATHER_SECONDS)
        elif not self._writing:
            self._idle.set()

    def _failed(self, error: BaseException) -> StoreFailed:
        self.failures += 1
        log.error("commit failed error=%s", error)
        return StoreFailed(
            "the store could not be written",
            where=str(self._path),
            found=str(error),
            hint=named(error, self._path).fix,
        )

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._crash is not None:
                raise self._crash
            if self._unwiped:
                await self._wipe_log()

    async def _wipe_log(self) -> None:
        self._wipe_at = self.commits + WIPE_COMMITS
        self._unwiped = False
        try:
            self._unwiped = not await self._connection.empty_log(WIPE_WAIT_MILLISECONDS) or self._unwiped
        except sqlite3.Error as error:
            self._unwiped = True
            log.error("the log still holds what was wiped, tried again error=%s", error)
        if self._unwiped and not self._waiting:
            self.spawn(self._wake_later(), "wipe again")

    async def _wake_later(self) -> None:
        await asyncio.sleep(WIPE_AGAIN_SECONDS)
        self._wake.set()
