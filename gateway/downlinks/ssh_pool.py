"""Which connections stay open: those in use, and of the others the ones used last, not for longer than they are of use.

Knows nothing of SSH: it counts, and closes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol


class Kept(Protocol):
    """An open connection."""

    @property
    def users(self) -> int:
        """How many work over it now."""

    @property
    def used(self) -> float:
        """When somebody worked over it last, in monotonic seconds."""

    def shut(self) -> None:
        """Close it."""


class Pool:
    """The open connections of a site, at most ``most``, the one used longest ago first."""

    def __init__(self, most: int, idle_seconds: float) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._open: OrderedDict[Kept, None] = OrderedDict()
        self._coming = 0
        self._space: asyncio.Event = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    async def room(self) -> None:
        """Wait until there is room for one more, which is held until ``took`` or ``gave_up``."""
        while len(self._open) + self._coming >= self._most:
            idle = next((kept for kept in self._open if not kept.users), None)
            if idle is not None:
                self.dropped(idle)
                idle.shut()
                continue
            self._space.clear()
            await self._space.wait()
        self._coming += 1

    def took(self, kept: Kept) -> None:
        """The one there was room for is open."""
        self._coming -= 1
        self._open[kept] = None

    def gave_up(self) -> None:
        """It did not come."""
        self._coming -= 1
        self._space.set()

    def touched(self, kept: Kept) -> None:
        """Somebody has begun or ended to work over it."""
        if kept in self._open:
            self._open.move_to_end(kept)
        if not kept.users:
            self._space.set()

    def dropped(self, kept: Kept) -> None:
        """It is open no more."""
        if self._open.pop(kept, self) is None:
            self._space.set()

    def close_idle(self, now: float) -> None:
        """Close what nobody has used for a while."""
        for kept in [each for each in self._open if not each.users and now - each.used >= self._idle_seconds]:
            self.dropped(kept)
            kept.shut()

    def close_all(self) -> None:
        """Close everything."""
        for kept in list(self._open):
            self.dropped(kept)
            kept.shut()
