"""Turns to log in to a device: as many at once as ``ssh_width`` says, first come first served.

A device that did not answer the last time waits for its turn in a lane of its own, so that those that do never wait
for those that do not. Before its turn each has to say its first word, for which many are waited for at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from device_agent.clock import Clock
from device_agent.name_lookup import NameLookup
from gateway.downlinks import ssh_width
from gateway.downlinks.ssh_width import Dropped, Made, Width

DOUBTED_PLACES: Final = 8
"""Logins at once to devices that did not answer the last time."""

DIALS: Final = 2000
"""Devices whose first word is waited for at once; one that hangs is given up after ``connect_seconds``."""

LOOKUPS: Final = 64
"""Names of devices that are looked up at once."""


class Turn:
    """One turn; who has it says how it went."""

    __slots__ = ("began", "dropped", "made")

    def __init__(self, began: float) -> None:
        self.began = began
        self.made = False
        self.dropped = False


class Turns:
    """The turns of one site."""

    def __init__(self, ceiling: int, clock: Clock) -> None:
        self.width: Width = ssh_width.initial(ceiling)
        self.under_way = 0
        self.dials = asyncio.Semaphore(DIALS)
        self.lookup = NameLookup(LOOKUPS)
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._doubted = asyncio.Semaphore(min(DOUBTED_PLACES, ceiling))

    @asynccontextmanager
    async def turn(self, *, doubted: bool) -> AsyncIterator[Turn]:
        """Wait for a turn and have it; what it says of a ``doubted`` device changes nothing for the others."""
        if doubted:
            async with self._doubted:
                yield Turn(self._clock.monotonic())
            return
        await self._enter()
        turn = Turn(self._clock.monotonic())
        try:
            yield turn
        finally:
            self.under_way -= 1
            self._learn(turn)
            self._admit()

    async def _enter(self) -> None:
        if self.under_way < self.width.places and not self._waiting:
            self.under_way += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.under_way -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.under_way < self.width.places:
            place = self._waiting.popleft()
            if not place.done():
                self.under_way += 1
                place.set_result(None)

    def _learn(self, turn: Turn) -> None:
        now = self._clock.monotonic()
        if turn.made:
            self.width = ssh_width.step(self.width, Made(now - turn.began, bool(self._waiting)))
        elif turn.dropped:
            self.width = ssh_width.step(self.width, Dropped(turn.began, now))
