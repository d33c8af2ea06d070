"""A read-only connection, apart from the writer, so that a long listing never holds up a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import aiosqlite

from device_agent.parts import Part

READ_SECONDS = 30.0


class Reader(Part):
    """Runs queries and returns whole results; callers bound them with LIMIT."""

    name: ClassVar[str] = "reader"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: aiosqlite.Connection | None = None

    async def open(self) -> None:
        """Open the file read-only."""
        self._connection = await aiosqlite.connect(f"file:{self._path}?mode=ro", uri=True, isolation_level=None)
        await self._connection.execute("PRAGMA busy_timeout=10000")

    async def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query, as tuples."""
        assert self._connection is not None
        async with asyncio.timeout(READ_SECONDS):
            return list(await self._connection.execute_fetchall(sql, values))

    async def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            async with asyncio.timeout(READ_SECONDS):
                await self._connection.close()
