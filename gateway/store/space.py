"""What is deleted is given back to the disk, in steps that hold up no commit for longer than a few milliseconds.

SQLite keeps pages that are free for what comes next. After a long outage these are most of the file, so they go: all of
them when nobody writes, and under a load that never ends as soon as they are more than half. Moving a page costs a
write of it, so what is only a little is kept. The write-ahead log is cut off when it was needed to be long.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.store.connection import Connection
from gateway.store.damage import is_damage, mark

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.05
"""Between two looks while something is written; one step each, so at most some hundredths of the time."""
STEP_PAGES: Final = 128
"""Given back at once: two milliseconds, or a flush of the disk where that takes longer."""
KEPT_PAGES: Final = 256
"""Free pages that are always kept: the next commit wants some."""
WORTH_PAGES: Final = 1024
"""So many must be free, and a part of the file, before it is begun in a quiet moment."""
WORTH_PART: Final = 16
BUSY_WORTH_PAGES: Final = 4096
BUSY_WORTH_PART: Final = 2
"""The same under load."""
LOG_BYTES: Final = 8 << 20
"""The log is kept that long: SQLite brings it home when it has a thousand pages."""
LOG_MOST_BYTES: Final = 64 << 20
"""Under load it may be that long, which happens where somebody always reads."""
LOG_WAIT_MILLISECONDS: Final = 100
AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Pages:
    free: int
    all: int


class Space:
    """Looks after the size of the file and of its log while and after something is written."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._written = asyncio.Event()
        self._count = 0

    def written(self) -> None:
        """Something was committed."""
        self._count += 1
        self._written.set()

    async def run(self) -> None:
        """Look after it for ever."""
        giving_back = False
        while True:
            await self._written.wait()
            self._written.clear()
            before = self._count
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if self._count != before:
                    giving_back = await self._under_load(giving_back)
                else:
                    await self._in_quiet(before)
            except sqlite3.Error as error:
                if is_damage(error):
                    raise mark(self._path, error) from None
                # A full disk for one; the next thing that is written makes it be tried again.
                log.warning("space was not given back, tried again later error=%s", error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _under_load(self, giving_back: bool) -> bool:
        pages = await self._connection.run(self._pages)
        if giving_back:
            more = pages.free > pages.all // (2 * BUSY_WORTH_PART)
        else:
            more = pages.free > max(BUSY_WORTH_PAGES, pages.all // BUSY_WORTH_PART)
        if more:
            await self._connection.run(self._step)
        elif giving_back:
            # The file itself gets smaller when the log has come home.
            await self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        elif self._log_bytes() > LOG_MOST_BYTES:
            await self._empty_log()
        return more

    async def _in_quiet(self, count: int) -> None:
        pages = await self._connection.run(self._pages)
        if pages.free > max(WORTH_PAGES, pages.all // WORTH_PART):
            while pages.free > KEPT_PAGES:
                if self._count != count:
                    return
                pages, before = await self._connection.run(self._step), pages
                if pages.free >= before.free:
                    # A file of an older release, which does not know where its pages belong.
                    break
        elif self._log_bytes() <= LOG_BYTES:
            return
        while self._count == count and self._log_bytes():
            await self._empty_log()

    async def _empty_log(self) -> None:
        if not await self._connection.empty_log(LOG_WAIT_MILLISECONDS):
            # Somebody reads in it.
            await asyncio.sleep(AGAIN_SECONDS)

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except FileNotFoundError:
            return 0

    def _pages(self, sqlite: sqlite3.Connection) -> _Pages:
        return _Pages(*(sqlite.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")))

    def _step(self, sqlite: sqlite3.Connection) -> _Pages:
        # As a script: it is run to its end, while a statement is left after the first page.
        sqlite.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")
        return self._pages(sqlite)
