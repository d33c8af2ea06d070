"""``diskusage``: file systems that are fuller than they may be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from device_agent.beacons.aside import Aside, Hangs
from device_agent.beacons.given import Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.readings.mounts import mounts

MOUNTS_BYTES: Final = 1024 * 1024
PLACE_SECONDS: Final = 5.0
"""How long one file system may take to say how full it is."""


class _Limit(NamedTuple):
    fits: Callable[[str], bool]
    percent: float


class DiskUsage(Looking):
    """Each option is a place, or a regular expression of places, and from how many percent on it is told."""

    def __init__(self, given: Given) -> None:
        # A place without a $ at its end is meant whole, as in Salt.
        self._limits = [
            _Limit(given.regex(place, place if place.endswith("$") else f"{place}$"), given.percent(place, limit))
            for place, limit in given.items
        ]
        self._aside: dict[str, Aside] = {}

    async def look(self, around: Around) -> list[Found]:
        """Every mounted place that is full enough, once for each option that it matches first."""
        text = await around.host.read(str(around.proc / "self/mounts"), limit=MOUNTS_BYTES)
        # What is mounted over another is the one that is seen.
        places = dict.fromkeys(each.place for each in mounts(text.decode(errors="surrogateescape")))
        wanted = {place: limits for place in places if (limits := self._of(place))}
        self._aside = {place: self._aside.get(place) or Aside() for place in wanted}
        found = []
        for place, limits in wanted.items():
            shown = place.encode(errors="surrogateescape").decode(errors="replace")
            try:
                async with asyncio.timeout(PLACE_SECONDS):
                    full = await self._aside[place].call(partial(percent, place))
            except (TimeoutError, Hangs):
                # A dead network disk says nothing, and the others are looked at.
                error = f"{shown} does not say how full it is: it hangs"
                found.append(Found({"error": error, "mount": shown}, about=shown, same=error))
                continue
            if full is not None and any(full >= limit for limit in limits):
                found.append(Found({"diskusage": full, "mount": shown}, about=shown))
        return found

    def _of(self, place: str) -> list[float]:
        return [limit.percent for limit in self._limits if limit.fits(place)]


def percent(place: str) -> float | None:
    """How full it is for those who are not root, as ``df`` says it; None for what is no disk, or is gone."""
    try:
        said = os.statvfs(place)
    except OSError:
        return None
    used = said.f_blocks - said.f_bfree
    room = used + said.f_bavail
    return round(100.0 * used / room, 1) if room else None
