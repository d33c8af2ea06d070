"""A bounded set of whole numbers as ranges. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

RANGES = 512
"""Most ranges; beyond it the narrowest gap is closed, so a few numbers count as seen that were not."""


class Ranges:
    """Numbers that were seen. Numbers come mostly in order, with gaps."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        for first, last in pairs:
            self._first.append(first)
            self._last.append(last)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._first, number) - 1
        return place >= 0 and number <= self._last[place]

    def add(self, number: int) -> None:
        """Number seen."""
        if number in self:
            return
        place = bisect_right(self._first, number)
        joins_left = place > 0 and self._last[place - 1] == number - 1
        joins_right = place < len(self._first) and self._first[place] == number + 1
        if joins_left and joins_right:
            self._close(place - 1)
        elif joins_left:
            self._last[place - 1] = number
        elif joins_right:
            self._first[place] = number
        else:
            self._first.insert(place, number)
            self._last.insert(place, number)
            if len(self._first) > RANGES:
                gaps = range(len(self._first) - 1)
                self._close(min(gaps, key=lambda each: self._first[each + 1] - self._last[each]))

    def pairs(self) -> list[tuple[int, int]]:
        """First and last number of each range, in order."""
        return list(zip(self._first, self._last, strict=True))

    def _close(self, place: int) -> None:
        self._last[place] = self._last.pop(place + 1)
        del self._first[place + 1]
