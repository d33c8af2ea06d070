"""Keeps the witness of a store up to date while the station runs, off the way of commits.

All commits of ``EVERY_SECONDS`` are witnessed together, so that the flush of the witness delays few of them. The store
commits first and the witness follows, so on a disk that keeps its promises the witness is never ahead.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gateway.store.connection import Connection
from gateway.store.damage import is_damage, mark
from gateway.store.witness import WitnessFile, position, witness_path

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 0.5
"""A loss of commits younger than this, and than one flush of the disk, may stay hidden."""


class WitnessKeeper:
    """Writes the witness after commits, and says in the end that the store was closed in order."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._written = asyncio.Event()
        self.file = WitnessFile(witness_path(path))

    def written(self) -> None:
        """Something was committed."""
        self._written.set()

    async def run(self) -> None:
        """Write the witness for ever."""
        while True:
            await self._written.wait()
            await asyncio.sleep(EVERY_SECONDS)
            self._written.clear()
            try:
                state = await self._connection.run(position)
            except sqlite3.Error as error:
                if is_damage(error):
                    raise mark(self._path, error) from None
                log.warning("the store's witness was not written, tried after the next commit error=%s", error)
            else:
                await asyncio.to_thread(self.file.write, state)

    async def finish(self) -> None:
        """Say that the store is closed in order. The caller commits nothing after this."""

        def closed(connection: sqlite3.Connection) -> None:
            # In the store's thread, which has nothing else to do any more.
            self.file.write(replace(position(connection), closed=True))

        try:
            await self._connection.run(closed)
        except sqlite3.Error as error:
            log.warning("the store's witness does not say that the store was closed in order error=%s", error)
        finally:
            self.file.close()
