"""How long to wait before trying again: full jitter under a doubling ceiling, so that ten thousand do not come at once.

Source: Marc Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), the "full jitter" variant.
"""

from __future__ import annotations

import random


class Backoff:
    """A series of waits in seconds: the n-th is uniform in [0, min(ceiling, first * 2**n)], never under ``floor``."""

    def __init__(
        self, first: float, ceiling: float, *, floor: float = 0.0, source: random.Random | None = None
    ) -> None:
        self._first = first
        self._ceiling = ceiling
        self._floor = floor
        self._source = source or random.SystemRandom()
        self._tries = 0

    def next(self) -> float:
        """The next wait."""
        bound = min(self._ceiling, self._first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return max(self._floor, self._source.uniform(0.0, bound))

    def reset(self) -> None:
        """Start over, after something worked."""
        self._tries = 0
