"""How often something may happen: a bucket that fills at a steady rate up to a burst (token bucket)."""

from __future__ import annotations

from device_agent.clock import Clock


class Allowance:
    """So many at once, and so many a second in the long run."""

    def __init__(self, *, per_second: float, burst: float, clock: Clock) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._at = clock.monotonic()

    def take(self) -> bool:
        """Whether it may happen once more now."""
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
