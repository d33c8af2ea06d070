"""A clock that is moved by hand, so that a test decides what time it is."""

from __future__ import annotations

from device_agent.clock import Clock

STARTED_WALL = 1_795_230_900.0
"""2026-11-21T03:15:00Z."""


class HandClock(Clock):
    """Both times stand still until the test moves them."""

    def __init__(self, monotonic: float = 1000.0, wall: float = STARTED_WALL) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self._monotonic += seconds
        self._wall += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock; no time has passed."""
        self._wall += seconds
