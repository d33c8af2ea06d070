"""The spool: items in SQLite until a master has confirmed them. RAM stays flat whatever its depth.

Items are added inside the transaction of whatever they tell of, so that an outcome and its way up are one fact.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from device_agent.protocol import limits
from device_agent.protocol.messages import Item, encode
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

_ADD = "INSERT INTO spool (kind, body) VALUES (?, ?)"


class Spool:
    """Implements ``upstream.ports.Outgoing``. On a station without masters it keeps nothing: nobody would take it."""

    def __init__(self, writer: Writer, reader: Reader, epoch: str, *, enabled: bool) -> None:
        self._writer = writer
        self._reader = reader
        self._epoch = epoch
        self._changed = asyncio.Event()
        self.enabled = enabled

    @property
    def epoch(self) -> str:
        """Names the store that numbered the items."""
        return self._epoch

    @property
    def changed(self) -> asyncio.Event:
        """Set after items were added."""
        return self._changed

    def adding(self, items: Sequence[Item]) -> list[Statement]:
        """The statements that add items; commit them with what they tell of, then call ``added``."""
        return self.adding_encoded(self.encoded(items))

    def encoded(self, items: Sequence[Item]) -> list[tuple[str, bytes]]:
        """Items as rows of the spool."""
        return [(type(item).__name__.lower(), encode(item)) for item in items] if self.enabled else []

    def adding_encoded(self, rows: Sequence[tuple[str, bytes]]) -> list[Statement]:
        """The same for items that are bytes already: what a relay passes on."""
        return [(_ADD, rows)] if self.enabled and rows else []

    def added(self) -> None:
        """Wake whoever sends."""
        self._changed.set()

    async def read(self, after: int) -> list[tuple[int, bytes]]:
        """The next items after a sequence: at most BATCH_ITEMS, and BATCH_BYTES unless a single one is larger."""
        # Sizes first: the bodies of a whole batch of the largest items would not fit in memory.
        sizes = await self._reader.rows(
            "SELECT sequence, length(body) FROM spool WHERE sequence > ? ORDER BY sequence LIMIT ?",
            (after, limits.BATCH_ITEMS),
        )
        last, total = after, 0
        for sequence, size in sizes:
            total += size
            if last > after and total > limits.BATCH_BYTES:
                break
            last = sequence
        if last == after:
            return []
        rows = await self._reader.rows(
            "SELECT sequence, body FROM spool WHERE sequence > ? AND sequence <= ? ORDER BY sequence", (after, last)
        )
        return [(sequence, body) for sequence, body in rows]

    async def confirm(self, sequence: int) -> None:
        """A master has everything up to here on disk: let it go."""
        await self._writer.commit([("DELETE FROM spool WHERE sequence <= ?", [(sequence,)])])

    async def reaches(self, sequence: int) -> bool:
        """Whether this store ever gave out a sequence that high."""
        rows = await self._reader.rows("SELECT seq FROM sqlite_sequence WHERE name = 'spool'")
        return sequence <= (rows[0][0] if rows else 0)

    async def renew_epoch(self) -> None:
        """Number from now on under another name."""
        epoch = secrets.token_hex(8)
        await self._writer.commit([("UPDATE station SET value = ? WHERE key = 'epoch'", [(epoch,)])])
        self._epoch = epoch

    async def pending(self) -> int:
        """How many items wait."""
        return int((await self._reader.rows("SELECT count(*) FROM spool"))[0][0])
