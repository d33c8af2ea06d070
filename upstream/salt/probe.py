"""Whether a Salt master is still there: it is asked something small when it has answered nothing for a while.

A half-dead line shows by nothing else. A master that stores a long answer may take longer for it than a dead one is
waited for; so every answer is a sign of life, and one that still answers something is slow and not lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.questions import Unanswered
from upstream.dealer import LinkLost
from upstream.link_terms import FIRST_WAIT_SECONDS

PROBE_SECONDS: Final = 5.0
PROBES: Final = 2
"""A master that does not answer so many probes one after another, nor anything else meanwhile, is lost."""

UNHEARD_SECONDS: Final = 60.0
"""How long the line for publishes may be down while requests are answered."""


class Line(Protocol):
    """On which the master publishes."""

    @property
    def connected(self) -> bool:
        """Whether it is up."""


class Probe:
    """``refused`` is told of each answer to it that is none."""

    def __init__(self, published: Line, refused: Callable[[Refused], None], clock: Clock) -> None:
        self._published = published
        self._refused = refused
        self._clock = clock
        self._heard = clock.monotonic()
        self._look = asyncio.Event()

    def heard(self) -> None:
        """The master has answered something."""
        self._heard = self._clock.monotonic()

    def look(self) -> None:
        """Something was not answered, or the line for publishes is down: ask now."""
        self._look.set()

    async def run(self, ask: Callable[[float], Awaitable[None]], every: float) -> None:
        """Ask after ``every`` seconds without an answer. Raises ``LinkLost`` when the master is not there any more.

        ``ask`` puts the small question, with so many seconds of patience, where it waits for no other one.
        """
        down_since: float | None = None
        while True:
            if await self._is_due(every):
                await self._answers(ask, every)
            now = self._clock.monotonic()
            if self._published.connected:
                down_since = None
            elif down_since is None:
                down_since = now
            elif now - down_since > UNHEARD_SECONDS:
                raise LinkLost(f"nothing published could be heard for {UNHEARD_SECONDS:.0f} s")

    async def _is_due(self, every: float) -> bool:
        """Wait until there may be a reason to ask, ``every`` seconds at the most; whether there is one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._heard + every - self._clock.monotonic()):
                await self._look.wait()
        looked = self._look.is_set()
        self._look.clear()
        return looked or self._clock.monotonic() >= self._heard + every

    async def _answers(self, ask: Callable[[float], Awaitable[None]], every: float) -> None:
        why = ""
        for _ in range(PROBES):
            try:
                await ask(PROBE_SECONDS)
            except Unanswered as error:
                why = str(error)
            except Refused as refusal:
                self._refused(refusal)
                why = str(refusal)
            else:
                return
        # Where nothing is published any more either, an answer of before says less.
        lately = max(PROBES * PROBE_SECONDS, every if self._published.connected else 0.0)
        if self._clock.monotonic() - self._heard >= lately:
            raise LinkLost(f"the master does not answer: {why}")
        # What is wrong with its answer may show at once.
        await asyncio.sleep(FIRST_WAIT_SECONDS)
