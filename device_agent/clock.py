"""The only reader of time. Durations are monotonic; the wall clock is for people and for what crosses machines."""

from __future__ import annotations

import time
from datetime import UTC, datetime


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
    """Salt's ``_stamp``: ISO 8601 with microseconds, without an offset, in UTC."""
    return datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
