"""The time by which things grow old: a wall clock that was set ahead makes nothing old before its time."""

from __future__ import annotations

import logging

from device_agent.clock import Clock, iso

log = logging.getLogger(__name__)

STEP_SECONDS = 60.0
"""More than a clock drifts between two looks."""


class SteadyClock:
    """Follows the wall clock, but a step ahead counts only when it has stood for as long as things are kept.

    By then nothing that was dated before the step is younger than it has to be, whichever of the two times was right.
    A step back counts at once: it makes things younger.
    """

    def __init__(self, clock: Clock, believed_after: float) -> None:
        self._clock = clock
        self._believed_after = believed_after
        self._wall, self._at = clock.wall(), clock.monotonic()
        self._ahead_since: float | None = None

    def now(self) -> float:
        """Seconds since 1970; look at it now and then."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        steady = self._wall + (monotonic - self._at)
        if wall - steady <= STEP_SECONDS:
            self._ahead_since = None
        elif self._ahead_since is None:
            self._ahead_since = monotonic
            log.warning("the clock was set ahead, nothing is pruned early for it from=%s to=%s", iso(steady), iso(wall))
        if self._ahead_since is not None and monotonic - self._ahead_since < self._believed_after:
            return steady
        self._wall, self._at, self._ahead_since = wall, monotonic, None
        return wall
