"""An uplink that is cut on purpose, for a time: an outage that somebody can see the end of."""

from __future__ import annotations

import asyncio

from device_agent.clock import Clock


class Cut:
    """Whether the uplink may be used, and since and until when it is cut (wall seconds). A restart ends a cut."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.whole = asyncio.Event()
        self.whole.set()
        self.since: float | None = None
        self.until: float | None = None
        self._turn = 0

    def begin(self, seconds: float) -> int:
        """Cut it; returns the number of this cut, by which it is ended."""
        self._turn += 1
        self.since = self._clock.wall()
        self.until = self.since + seconds
        self.whole.clear()
        return self._turn

    def end(self, turn: int | None = None) -> None:
        """Mend it; with a number, only if that cut is the one that lasts."""
        if turn is None or turn == self._turn:
            self.since = self.until = None
            self.whole.set()
