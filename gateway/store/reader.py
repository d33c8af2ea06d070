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

    async def open(self) -> None:
        """Open the file read-only."""
        address = f"file:{quote(str(self._path))}?mode=ro"
        self._connection = await aiosqlite.connect(address, uri=True, isolation_level=None)
        await self._connection.execute("PRAGMA busy_timeout=10000")

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
            raise StoreUnreadable(
                "the store could not be read",
                where=str(self._path),
                found=str(error) or f"no answer in {READ_SECONDS:.0f} s",
            ) from None

    async def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            async with asyncio.timeout(READ_SECONDS):
                await self._connection.close()
