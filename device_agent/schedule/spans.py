"""Spans of time in which an entry of a schedule runs, or does not. Pure."""

from __future__ import annotations

from datetime import datetime, time, tzinfo
from typing import TypeVar

from msgspec import Struct

from device_agent.schedule.moments import Moment

T = TypeVar("T", time, float)


class Span(Struct, frozen=True):
    """From one time to another: each day where both are times of a day, and across midnight where they are so.

    Times of a day are read off the clocks of the zone, as Salt does: so on the day on which clocks are changed as well.
    """

    start: Moment
    end: Moment
    invert: bool = False

    def holds(self, wall: float, zone: tzinfo) -> bool:
        """Whether a time is in it."""
        if self._daily:
            inside = _between(self.start.clock, datetime.fromtimestamp(wall, zone).time(), self.end.clock)
        else:
            inside = _between(self.start.today(wall, zone), wall, self.end.today(wall, zone))
        return inside != self.invert

    def over(self, wall: float, zone: tzinfo) -> float:
        """When it is over, for a time that is in it."""
        if self._daily:
            end = self.end.clock
            # With the fold of the time that is asked for: clocks may show the end of a span twice.
            shown = datetime.fromtimestamp(wall, zone).replace(
                hour=end.hour, minute=end.minute, second=end.second, microsecond=0
            )
            if shown.timestamp() > wall:
                return shown.timestamp()
        return self.end.after(wall, zone) or wall

    @property
    def _daily(self) -> bool:
        return all(each.weekday is None and each.day is None for each in (self.start, self.end))


def _between(start: T, found: T, end: T) -> bool:
    # Ends that are the other way round lie on two days.
    return start <= found <= end if start <= end else found >= start or found <= end
