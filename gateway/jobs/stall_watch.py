"""Notices that the whole process did nothing for a while: it was stopped, or starved of the processor.

Messages that arrived meanwhile are not read yet, so silence of that time says nothing.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from device_agent.clock import Clock

TICK_SECONDS: Final = 1.0
STALL_SECONDS: Final = 5.0
"""A tick that comes so much too late is a stall."""


class StallWatch:
    """Keeps when this process last stalled, in monotonic seconds of ``clock``."""

    def __init__(self, clock: Clock, stall_seconds: float = STALL_SECONDS) -> None:
        self.stall_seconds = stall_seconds
        self._clock = clock
        self._ticked: float | None = None
        self._stalled = -math.inf

    async def run(self) -> None:
        """Tick for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._ticked = loop.time()
            await asyncio.sleep(TICK_SECONDS)
            self.last_stall()

    def last_stall(self) -> float:
        """When the process last stalled; minus infinity when it never did. A stall shows before the next tick."""
        if self._ticked is not None:
            late = asyncio.get_running_loop().time() - self._ticked - TICK_SECONDS
            if late > self.stall_seconds:
                self._stalled = self._clock.monotonic()
        return self._stalled
