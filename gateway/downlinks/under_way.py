"""The jobs that run now on one link, and a wait until there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class UnderWay:
    """Counts coroutines while they run."""

    def __init__(self) -> None:
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def counted(self, job: Coroutine[Any, Any, None]) -> None:
        """Run one."""
        self._running += 1
        self._quiet.clear()
        try:
            await job
        finally:
            self._running -= 1
            if not self._running:
                self._quiet.set()

    async def quiet(self) -> None:
        """Return when none runs."""
        await self._quiet.wait()
