"""How many bytes of items may go up in a second: one bucket for all links, filled by the clock.

A batch is sent when the bucket is not in debt, and may put it there: so the largest item passes whatever the rate is,
and whoever comes next waits until it is paid for. Batches are cut to half a second of the rate, so that an urgent item
waits that long behind one and not for what lies in the spool.
"""

from __future__ import annotations

import asyncio

from device_agent.clock import Clock
from device_agent.protocol import limits

BATCH_SECONDS = 0.5


class LinkBudget:
    """A token bucket of one batch; without a limit (0) it is never empty."""

    def __init__(self, bytes_per_second: int, clock: Clock) -> None:
        self._rate = float(bytes_per_second)
        self._clock = clock
        self._filled = clock.monotonic()
        self._left = self._rate * BATCH_SECONDS

    @property
    def most_bytes(self) -> int:
        """How large a batch may be."""
        if not self._rate:
            return limits.BATCH_BYTES
        return min(limits.BATCH_BYTES, max(1, int(self._rate * BATCH_SECONDS)))

    async def room(self) -> None:
        """Return when a batch may be sent."""
        if (debt := self.debt()) > 0.0:
            await asyncio.sleep(debt / self._rate)

    def debt(self) -> float:
        """Bytes that are sent and not yet paid for."""
        if not self._rate:
            return 0.0
        now = self._clock.monotonic()
        self._left = min(self._rate * BATCH_SECONDS, self._left + (now - self._filled) * self._rate)
        self._filled = now
        return -self._left

    def spend(self, size: int) -> None:
        """So many bytes are on their way."""
        if self._rate:
            self._left -= size
