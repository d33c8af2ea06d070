"""A read-only connection, apart from the writer, so that a long listing never holds up a commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import aiosqlite

from device_agent.errors import StationFailed
from device_agent.parts import Part
from gateway.store.damage import StoreDamaged, is_damage, mark

READ_SECONDS = 30.0


class StoreUnreadable(StationFailed):
    """A question to the store has no answer now."""

    default_id = "store.unreadable"


class Reader(Part):
    """Runs queries and returns whole results; callers bound them with LIMIT."""

    name: ClassVar[str] = "reader"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: aiosqlite.Connection | None = None
        self._damage: StoreDamaged | None = None
        self._damaged = asyncio.Event()

    async def open(self) -> None:
        """Open the file read-only."""
        address = f"file:{quote(str(self._path))}?mode=ro"
        self._connection = await aiosqlite.connect(address, uri=True, isolation_level=None)
        await self._connection.execute("PRAGMA busy_timeout=10000")
        self.spawn(self._watch(), "damage")

    @property
    def path(self) -> Path:
        """The file that is read."""
        return self._path

    async def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query, as tuples. Raises ``StoreUnreadable``."""
        assert self._connection is not None
        try:
            async with asyncio.timeout(READ_SECONDS):
                return list(await self._connection.execute_fetchall(sql, values))
        except (sqlite3.Error, TimeoutError) as error:
            if is_damage(error) and self._damage is None:
                self._damage = mark(self._path, error)
                self._damaged.set()
            raise StoreUnreadable(
                "the store could not be read",
                where=str(self._path),
                found=str(error) or f"no answer in {READ_SECONDS:.0f} s",
            ) from None

    async def _watch(self) -> None:
        """End the process when the store is damaged: the next one begins with what can be read."""
        await self._damaged.wait()
        assert self._damage is not None
        raise self._damage

    async def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            async with asyncio.timeout(READ_SECONDS):
                await self._connection.close()
