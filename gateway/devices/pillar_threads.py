"""Threads of one outside source of pillar: one that never answers holds up its own askers, and nobody else's work.

The station's other threads have nothing to do with them, and its end does not wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 8
TURN_SECONDS: Final = 60.0
"""So long somebody waits for a turn."""


class SourceThreads:
    """A few at once. A thread that is given up keeps its turn until it really ends."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, work: Callable[[], T], seconds: float) -> T:
        """What the work returns or raises. Raises ``TimeoutError`` when it takes longer, or gets no turn."""
        async with asyncio.timeout(TURN_SECONDS):
            await self._turns.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def told(tell: Callable[[], None]) -> None:
            # Who is told learns it before the next one begins.
            if not done.done():
                tell()
            self._turns.release()

        def run() -> None:
            tell: Callable[[], None]
            try:
                found = work()
            except Exception as error:  # noqa: BLE001 - it is raised where the work was asked for
                tell = _failing(done, error)
            else:
                tell = _filling(done, found)
            # The loop is closed when the station has ended meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(told, tell)

        try:
            Thread(target=run, name="pillar-source", daemon=True).start()
        except RuntimeError:
            self._turns.release()
            raise TimeoutError from None
        async with asyncio.timeout(seconds):
            return await done


def _failing(done: asyncio.Future[T], error: Exception) -> Callable[[], None]:
    return lambda: done.set_exception(error)


def _filling(done: asyncio.Future[T], found: T) -> Callable[[], None]:
    return lambda: done.set_result(found)
