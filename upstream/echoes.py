"""Asks a master again and again whether its program works, and how long the line takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from upstream import frames
from upstream.dealer import LinkLost
from upstream.item_sender import Send
from upstream.link_terms import Ends

HELD_UP_SECONDS = 0.5
"""A program that sleeps so much longer than it meant to is too busy, or its machine is."""


class Echoes:
    """The echoes over one connection after another. ``took`` is called with the seconds that an answer took."""

    def __init__(self, ends: Ends, took: Callable[[float], None]) -> None:
        self._ends = ends
        self._took = took
        self._heard = 0.0
        self._listening = False
        self._asked: dict[int, float] = {}

    def listens(self) -> None:
        """From now on the master can be heard; what it said before is waiting to be."""
        self._heard = self._ends.clock.monotonic()
        self._listening = True

    def heard(self) -> None:
        """The master said anything. While that is dealt with, which may take a slow disk its time, it is not heard."""
        self._heard = self._ends.clock.monotonic()
        self._listening = False

    def answered(self, nonce: int) -> None:
        """It answered an echo."""
        asked = self._asked.pop(nonce, None)
        if asked is not None:
            self._took(self._ends.clock.monotonic() - asked)

    async def run(self, send: Send) -> None:
        """Ask until cancelled. Raises ``LinkLost`` when nothing is heard."""
        clock, every, limit = self._ends.clock, self._ends.echo_every, self._ends.silence_limit
        nonce = 0
        self._asked.clear()
        while True:
            nonce += 1
            asked = self._asked[nonce] = clock.monotonic()
            await send(frames.Echo(nonce))
            await asyncio.sleep(every)
            now = clock.monotonic()
            silent = now - self._heard
            # Who was held up himself cannot say that the other was silent: he asks again, for a while.
            held_up = not self._listening or now - asked > every + HELD_UP_SECONDS
            if silent > limit and not (held_up and silent < 4.0 * limit):
                raise LinkLost(f"no echo for {silent:.0f} s")
            for old in [each for each, at in self._asked.items() if now - at > 4.0 * limit]:
                del self._asked[old]
