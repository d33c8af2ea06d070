"""Words for a time, as in ``5:00pm``, ``Monday 17:30`` or ``2026-11-23 09:00``, and the times they stand for. Pure.

A time alone is meant each day, one with a weekday each week, one with a date once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final, TypeVar

WORDS: Final = "a time such as 17:30 or 5:30pm, with a weekday (Monday 5pm) or a date (2026-11-23 17:30) where wanted"

WEEK: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
CHARACTERS: Final = 80
LAST_YEAR: Final = 2500

T = TypeVar("T")

_clock = re.compile(r"(\d{1,2})(?::(\d{2})(?::(\d{2}))?)? ?(am|pm)?", re.IGNORECASE)
_token = re.compile(
    r"\d{4}-\d{2}-\d{2}|\d{1,2}/\d{1,2}/\d{4}"
    r"|\d{1,2}(?::\d{2}){0,2} ?(?:am|pm)\b|\d{1,2}(?::\d{2}){1,2}"
    r"|[a-z]+|\d{1,4}(?:st|nd|rd|th)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that comes each day, each week or once."""

    clock: time
    weekday: int | None = None
    day: date | None = None
    zone: tzinfo | None = None
    """Its own zone, where its text says one."""

    def on(self, day: date, zone: tzinfo) -> float:
        """Seconds since 1970 on this day. A time that the clocks skip is that much later, one they repeat the first."""
        return datetime.combine(day, self.clock, self.zone or zone).timestamp()

    def after(self, wall: float, zone: tzinfo) -> float | None:
        """The first time after this one; None when there is none."""
        if self.day is not None:
            once = self.on(self.day, zone)
            return once if once > wall else None
        found = (self.on(day, zone) for day in self._days(wall, zone, range(-1, 9)))
        return next((each for each in found if each > wall), None)

    def until(self, wall: float, zone: tzinfo) -> float | None:
        """The last time that is not after this one; None when there is none."""
        if self.day is not None:
            once = self.on(self.day, zone)
            return once if once <= wall else None
        found = (self.on(day, zone) for day in self._days(wall, zone, range(1, -9, -1)))
        return next((each for each in found if each <= wall), None)

    def today(self, wall: float, zone: tzinfo) -> float:
        """The time that is meant on the day of this one: as Salt reads the ends of a range."""
        day = self.day
        if day is None:
            day = datetime.fromtimestamp(wall, self.zone or zone).date()
            if self.weekday is not None:
                day += timedelta(days=(self.weekday - day.weekday()) % 7)
        return self.on(day, zone)

    def _days(self, wall: float, zone: tzinfo, steps: range) -> list[date]:
        today = datetime.fromtimestamp(wall, self.zone or zone).date()
        days = [today + timedelta(days=step) for step in steps]
        return [day for day in days if self.weekday in (None, day.weekday())]


def moment(text: object) -> Moment:
    """What a text stands for. Raises ``ValueError`` with what is wrong with it."""
    found = _read(text)
    if found.day is not None and not 1970 <= found.day.year <= LAST_YEAR:
        raise ValueError(f"the year {found.day.year} is not between 1970 and {LAST_YEAR}")
    return found


def _read(text: object) -> Moment:
    if isinstance(text, datetime):
        return Moment(text.timetz().replace(tzinfo=None), day=text.date(), zone=text.tzinfo)
    if not isinstance(text, str) or not 1 <= len(text.strip()) <= CHARACTERS:
        raise ValueError(f"it is no text of 1 to {CHARACTERS} characters")
    try:
        whole = datetime.fromisoformat(text.strip()) if "-" in text else None
    except ValueError:
        whole = None
    if whole is not None:
        return Moment(whole.time(), day=whole.date(), zone=whole.tzinfo)
    return _from_words(text)


def _from_words(text: str) -> Moment:
    clock: time | None = None
    weekday: int | None = None
    day: date | None = None
    month: int | None = None
    numbers: list[int] = []
    rest = re.sub(r"[\s,]+", " ", _token.sub(" ", text)).strip().strip("Tt").strip()
    if rest:
        raise ValueError(f"{rest[:20]!r} in it means nothing here")
    for token in (found[0] for found in _token.finditer(text)):
        lower = token.lower()
        if lower in ("t", "at", "on"):
            continue
        if "-" in token or "/" in token:
            day = _only(day, _date(token))
        elif ":" in token or (lower.endswith(("am", "pm")) and lower[0].isdigit()):
            clock = _only(clock, _time(token))
        elif token[0].isdigit():
            numbers.append(int(lower.rstrip("stndrh")))
        elif (found := _named(lower, MONTHS)) is not None:
            month = _only(month, found + 1)
        elif (found := _named(lower, WEEK)) is not None:
            weekday = _only(weekday, found)
        else:
            raise ValueError(f"{token[:20]!r} is no weekday and no month")
    if month is not None:
        if len(numbers) != 2 or day is not None:
            raise ValueError("a month takes a day and a year with four digits")
        number, year = sorted(numbers)
        day = date(year, month, number)
    elif numbers:
        raise ValueError(f"{numbers[0]} is no time: 17:00 or 5pm is")
    if clock is None and weekday is None and day is None:
        raise ValueError("it says no time")
    return Moment(clock or time(), weekday if day is None else None, day)


def _only(before: T | None, now: T) -> T:
    if before is not None:
        raise ValueError("it says two times")
    return now


def _date(token: str) -> date:
    if "-" in token:
        return date.fromisoformat(token)
    month, day, year = map(int, token.split("/"))
    return date(year, month, day)


def _time(token: str) -> time:
    found = _clock.fullmatch(token)
    assert found is not None, "the tokens are made so"
    hour, minute, second = (int(found[part] or 0) for part in (1, 2, 3))
    half = (found[4] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(f"{token} is no time: before am and pm there are 12 hours")
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, minute, second)


def _named(word: str, names: tuple[str, ...]) -> int | None:
    if len(word) < 3:
        return None
    return next((number for number, name in enumerate(names) if name.startswith(word)), None)
