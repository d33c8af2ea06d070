"""Two places in a stream of the spool: what is fresh is told first, what waited longer goes on behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from gateway.spool.queue import Spool
from upstream.frames import Stream

PAGE_BYTES: Final = 256 * 1024
"""Read ahead at once."""


class _Place:
    """One place: what was read ahead, up to ``until`` (0: without an end)."""

    def __init__(self, after: int, until: int = 0) -> None:
        self.after = after
        self.until = until
        self._ahead: deque[tuple[int, bytes]] = deque()

    async def next(self, spool: Spool, stream: Stream) -> tuple[int, bytes] | None:
        if not self._ahead:
            if self.until and self.after >= self.until:
                return None
            rows = await spool.read(stream, self.after, PAGE_BYTES)
            self._ahead.extend((sequence, body) for sequence, body in rows if not self.until or sequence <= self.until)
            self.after = rows[-1][0] if rows else self.after
            if not self._ahead:
                # Nothing is left before the end.
                self.after = max(self.after, self.until)
                return None
        return self._ahead.popleft()


class Cursor:
    """Goes once over what waits, the newest first; ``rewind`` goes over all of it again."""

    def __init__(self, stream: Stream, newest: int) -> None:
        self._stream = stream
        self._fresh = _Place(newest)
        self._backlog = _Place(0, newest) if newest else None

    def rewind(self) -> None:
        """What was passed over may have to be told now."""
        if self._fresh.after:
            self._backlog = _Place(0, self._fresh.after)
            # What was read ahead of it is read again as backlog.
            self._fresh = _Place(self._fresh.after)

    async def items(self, spool: Spool) -> AsyncIterator[tuple[int, bytes]]:
        """The next items, until there are none now."""
        while (item := await self._fresh.next(spool, self._stream)) is not None:
            yield item
        while (place := self._backlog) is not None:
            item = await place.next(spool, self._stream)
            if item is not None:
                yield item
            elif self._backlog is place:
                self._backlog = None
