"""The only reader of time. Durations are monotonic; the wall clock is for people and for what crosses machines."""

from __future__ import annotations

import time
from datetime import UTC, datetime

FIRST = 0.0
LAST = 253_402_300_799.0
"""What a stamp can say: from 1970 to the end of the year 9999."""


class Clock:
    """What time it is. Tests pass one that is moved by hand."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970 UTC, as this machine believes; it may jump."""
        return time.time()


def iso(wall_seconds: float) -> str:
    """A wall time as ISO 8601 in UTC with seconds; a time no calendar has is printed as the number it is."""
    try:
        return datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{wall_seconds:.0f}s"


def stamp(wall_seconds: float) -> str:
    """Salt's ``_stamp``: ISO 8601 with microseconds, in UTC without an offset; at the ends of the calendar it stops."""
    # The bounds first: what is no number at all is not less than the last, and gives way to it.
    return datetime.fromtimestamp(max(FIRST, min(LAST, wall_seconds)), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


def worded(wall_seconds: float) -> str:
    """A time in UTC as Salt words it in a sentence: ``Sat Nov 21 03:15:00 2026``."""
    return time.asctime(time.gmtime(max(FIRST, min(LAST, wall_seconds))))
