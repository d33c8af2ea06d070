"""How often to sign in again at one master: what looks like a new key may be an old message, or a fault of settings."""

from __future__ import annotations

from typing import Final

from device_agent.clock import Clock

AT_ONCE: Final = 3
ONE_PER_SECONDS: Final = 20.0


class SignInBudget:
    """A bucket of a few, filled by the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(AT_ONCE)
        self._filled = clock.monotonic()

    def take(self) -> bool:
        """Whether one more is allowed now; it is then spent."""
        now = self._clock.monotonic()
        self._left = min(float(AT_ONCE), self._left + (now - self._filled) / ONE_PER_SECONDS)
        self._filled = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
