"""Tells the service manager how a daemon does, and feeds its watchdog while the daemon really works.

A timer alone would go on in a process that does nothing else any more. So before each feeding every judge is asked,
one for each thing without which the daemon is of no use; a judge that gives a reason, or none in time, stops the
feeding. Then the service manager ends the process, and starts it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final

from device_agent.notify import Notifier
from device_agent.parts import Part

log = logging.getLogger(__name__)

Judge = Callable[[], Awaitable[str | None]]
"""Why something does not work any more; None as long as it does. What a restart would not mend is no reason."""

LOOK_SECONDS: Final = 5.0
LOOKS: Final = 4
"""Feedings in the time that the watchdog gives, at least."""


class ServiceReports(Part):
    """Ready when it opens; from then on the state, and the watchdog's food."""

    name: ClassVar[str] = "service-reports"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(self, notifier: Notifier, sentence: Callable[[], Awaitable[str]], judges: Mapping[str, Judge]) -> None:
        self._notifier = notifier
        self._sentence = sentence
        self._judges = judges
        self._watchdog = notifier.watchdog_seconds
        self._pause = min(LOOK_SECONDS, self._watchdog / LOOKS) if self._watchdog else LOOK_SECONDS
        self._failing = ""

    async def open(self) -> None:
        """Say that the daemon serves: it is the last part that opens."""
        if self._notifier.listens:
            self._notifier.ready(await self._sentence())
            self.spawn(self._run(), "reports")

    async def drain(self) -> None:
        """Say that it stops: it is the first part that drains."""
        self._notifier.stopping("stopping: what is under way is finished first")

    async def _run(self) -> None:
        while True:
            if self._watchdog:
                failing = await self._judged()
                if not failing:
                    self._notifier.alive()
                elif not self._failing:
                    log.critical("does not work any more, the watchdog is not fed: %s", failing)
                self._failing = failing
            if self._failing:
                self._notifier.status(f"hangs, and is started again: {self._failing}")
            else:
                self._notifier.status(await self._sentence())
            await asyncio.sleep(self._pause)

    async def _judged(self) -> str:
        """What does not work; empty while all does. A judge has half the watchdog's time."""
        for name, judge in self._judges.items():
            try:
                async with asyncio.timeout(self._watchdog / 2):
                    reason = await judge()
            except TimeoutError:
                reason = f"nothing came back in {self._watchdog / 2:g} s"
            if reason:
                return f"{name}: {reason}"
        return ""
