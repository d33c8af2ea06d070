"""Notices that this station's clock was set, and lets devices open new sessions, in which they are told the time.

A device has the time from its session, and counts on from there by itself. So a clock that jumps away does no harm to
sessions that are open; those that were opened meanwhile have the wrong time, and get the right one when the clock is
set back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.parts import Part

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
STEP_SECONDS = 60.0
FAR_AHEAD_SECONDS = 2 * 86_400.0
"""A step that is no mistake of a day: this machine did not know the time, and now it does."""


class ClockWatch(Part):
    """Compares the two clocks."""

    name: ClassVar[str] = "clock-watch"
    drain_seconds: ClassVar[float] = 0.5

    def __init__(self, clock: Clock, set_right: Callable[[], Awaitable[None]]) -> None:
        self._clock = clock
        self._set_right = set_right
        self._first = self._offset = clock.wall() - clock.monotonic()

    async def open(self) -> None:
        """Start watching."""
        self.spawn(self._run(), "watch")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            offset = self._clock.wall() - self._clock.monotonic()
            step, self._offset = offset - self._offset, offset
            if abs(step) < STEP_SECONDS:
                continue
            log.warning("the clock of this machine was set seconds=%+.0f", step)
            if abs(offset - self._first) < STEP_SECONDS or step < 0 or step > FAR_AHEAD_SECONDS:
                await self._set_right()
