"""How many answers go to a Salt master in one message, and how many messages at once: fewer while it is slow. Pure.

A master says that it has a message when each of its answers is stored. One that takes longer over a message than it is
waited for would never have been told anything, and get the same again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHUNK: Final = 100
"""Most answers in one message: a stock master stores each by itself, so more in one save it nothing."""

LINES: Final = 3
"""Most messages on their way at once. A stock master has five workers: the others are for its other minions."""

SLOW_SECONDS: Final = 10.0
"""A sixth of what a message is waited for. Who takes so long gets less in the next one."""

QUICK_SECONDS: Final = 5.0
"""Who takes less over a full message gets more in the next one."""

FEW: Final = 10
"""When even so few answers take it long, it is busy with others, and gets fewer messages at once."""


@dataclass
class Pace:
    """What one master is told at once. It outlives a link, for the next one goes to the same master."""

    chunk: int = CHUNK
    ways: int = LINES

    def took(self, answers: int, seconds: float, *, confirmed: bool) -> None:
        """The master has confirmed so many answers in one message, or was given up, after this time."""
        if seconds >= SLOW_SECONDS:
            # Of what it was told: several messages of one size that are late together shrink the next ones once.
            self.chunk = max(1, min(self.chunk, answers // (2 if confirmed else 4)))
            if answers <= FEW:
                self.ways = max(1, self.ways - 1)
        elif confirmed and seconds < QUICK_SECONDS and answers >= self.chunk:
            self.chunk = min(CHUNK, self.chunk + self.chunk // 4 + 1)
            self.ways = min(LINES, self.ways + (self.chunk > FEW))
