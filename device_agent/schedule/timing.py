"""When an entry is due, and what keeps it from running then. Pure; times are seconds since 1970.

A due time is one that the entry's rhythm names. Due times rise, and each is taken once: the run, or the reason why
there was none, belongs to it. What a splay adds comes from the entry, the due time and the device alone, so it is the
same after a restart.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from cronsim import CronSim

from device_agent.schedule.entries import Entry

LATE_SECONDS: Final = 60.0
"""What was due for so long and did not run is missed."""

_BESIDE: Final = 1e-3
"""Less than lies between any two due times."""


def next_due(entry: Entry, after: float, base: float) -> float | None:
    """The first due time after this one; None when there will be none. An interval counts from ``base``."""
    found: list[float] = []
    if entry.seconds:
        turns = max(0, math.floor((after + _BESIDE - base) / entry.seconds)) + 1
        found.append(base + turns * entry.seconds)
    found += [due for moment in entry.when if (due := moment.after(after, entry.zone)) is not None]
    if entry.cron and (due := _cron(entry, after)) is not None:
        found.append(due)
    if entry.once is not None and entry.once > after:
        found.append(entry.once)
    return min(found, default=None)


def last_due(entry: Entry, until: float, base: float) -> float | None:
    """The last due time that is not after this one; None when there was none."""
    found: list[float] = []
    if entry.seconds and until - base >= entry.seconds - _BESIDE:
        found.append(base + math.floor((until + _BESIDE - base) / entry.seconds) * entry.seconds)
    found += [due for moment in entry.when if (due := moment.until(until, entry.zone)) is not None]
    if entry.cron and (due := _cron(entry, until + _BESIDE, back=True)) is not None:
        found.append(due)
    if entry.once is not None and entry.once <= until:
        found.append(entry.once)
    return max(found, default=None)


def just_before(due: float) -> float:
    """A time after which this due time is the next."""
    return due - 2 * _BESIDE


def splay(entry: Entry, due: float, device: str) -> float:
    """The seconds by which a run is put off: drawn for each device and due time anew, and the same when asked again."""
    if entry.splay is None:
        return 0.0
    drawn = random.Random(f"{device}\0{entry.name}\0{due:.0f}")
    return float(drawn.randint(*entry.splay))


def barred(entry: Entry, wall: float) -> str:
    """What keeps an entry from running now, in Salt's words for it; empty when nothing does."""
    if not entry.enabled:
        return "disabled"
    if entry.range is not None and not entry.range.holds(wall, entry.zone):
        return "not_in_range"
    if entry.skip_during_range is not None and entry.skip_during_range.holds(wall, entry.zone):
        return "in_skip_range"
    if entry.until is not None and wall >= entry.until:
        return "until_passed"
    if entry.after is not None and wall <= entry.after:
        return "after_not_passed"
    return ""


def _cron(entry: Entry, wall: float, *, back: bool = False) -> float | None:
    at = datetime.fromtimestamp(wall, UTC).astimezone(entry.zone)
    for found in islice(CronSim(entry.cron, at, reverse=back), 4):
        due = found.timestamp()
        # A line of cron says minutes: what it names must lie on the wanted side of the time that was asked for.
        if (due <= wall) if back else (due > wall):
            return due
    return None
