"""How much may be under way to a master and not confirmed: about a second of the line, as it proves to be.

Whatever is on the line already goes before an alarm and before an echo: on a slow line eight full batches would take
minutes, and the link would be taken for lost. So it begins small, grows while confirmations come soon and what is under
way was what held it up, and shrinks when an echo has to wait. A master whose disk is slow answers echoes all the same.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, NamedTuple

from device_agent.clock import Clock
from device_agent.protocol import limits
from upstream.frames import Stream

LEAST_BYTES: Final = 64 * 1024
FIRST_BYTES: Final = 512 * 1024
MOST_BYTES: Final = limits.BATCHES_IN_FLIGHT * limits.BATCH_BYTES
SLOW_SECONDS: Final = 2.0
"""An echo that takes so long waits behind too much; or a third of the time after which the link is lost, if less."""


class _Batch(NamedTuple):
    stream: Stream
    last: int
    size: int
    at: float
    filled: bool


class Window:
    """What is under way over one connection after another to one master."""

    def __init__(self, clock: Clock, silence_limit: float) -> None:
        self._clock = clock
        self._slow = min(SLOW_SECONDS, silence_limit / 3.0)
        self._most = FIRST_BYTES
        self._batches: deque[_Batch] = deque()
        self._bytes = 0

    @property
    def batch_bytes(self) -> int:
        """How large a batch may be: two of them are under way, so that the line is never idle."""
        return min(limits.BATCH_BYTES, self._most // 2)

    @property
    def is_full(self) -> bool:
        """Whether the next batch has to wait. Counted in batches too, as the master does: some hold few bytes."""
        return len(self._batches) >= limits.BATCHES_IN_FLIGHT or self._bytes >= self._most

    def begin(self) -> None:
        """A new connection. What was under way when the one before was lost may have been too much for it."""
        if self._batches:
            self._most = LEAST_BYTES
        self._batches.clear()
        self._bytes = 0

    def sent(self, stream: Stream, last: int, size: int) -> None:
        """A batch is under way, up to this sequence."""
        self._bytes += size
        self._batches.append(_Batch(stream, last, size, self._clock.monotonic(), self._bytes * 2 >= self._most))

    def confirmed(self, positions: Counter[Stream]) -> None:
        """The master has so much of each stream."""
        while self._batches and self._batches[0].last <= positions[self._batches[0].stream]:
            batch = self._batches.popleft()
            self._bytes -= batch.size
            if batch.filled and self._clock.monotonic() - batch.at < self._slow / 2.0:
                self._most = min(MOST_BYTES, self._most * 2)

    def echo_took(self, seconds: float) -> None:
        """An echo was answered after so long."""
        if seconds > self._slow and self._batches:
            self._most = max(LEAST_BYTES, self._most // 2)
