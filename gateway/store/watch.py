"""Watches a store that fails: it is tried again each second, so that its end is seen when nothing else is written."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import ClassVar, Final

from device_agent.clock import Clock
from device_agent.parts import Part
from gateway.store.health import Failing
from gateway.store.writer import StoreFailed, Writer

LOOK_SECONDS: Final = 1.0
OLD_SECONDS: Final = 10.0
"""What a commit said of the disk is asked for anew after so long."""

PROBE_SECONDS: Final = 3.0
PULSE: Final = "INSERT OR REPLACE INTO station (key, value) VALUES ('pulse', ?)"


class StoreWatch(Part):
    """Tells what is wrong with the store."""

    name: ClassVar[str] = "store-watch"

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def open(self) -> None:
        """Start to look."""
        self.spawn(self._run(), "look")

    async def look(self) -> Failing | None:
        """What is wrong with the store now: an idle one is written first."""
        if self._clock.monotonic() - self._writer.health.last_tried > OLD_SECONDS and self._writer.failing() is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    await self.probe()
        return self._writer.failing()

    async def probe(self) -> None:
        """Write one row."""
        with suppress(StoreFailed):
            await self._writer.commit([(PULSE, [(str(int(self._clock.wall())),)])])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            tried = self._clock.monotonic() - self._writer.health.last_tried
            if self._writer.health.is_failing and tried >= LOOK_SECONDS:
                await self.probe()
