"""Which of what a beacon found is news, and which is more of the same: that is counted, not said. Pure.

What is found for the first time, or is another than before, is said at once. While it stays the same it is said again
after ``fold`` seconds, or never with ``onchangeonly``. How often it was not said is told with what is said next of it.
Of what is ``momentary`` the last one is said when its time is over, so that no count is left untold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from device_agent.beacons.given import Options
from device_agent.beacons.port import Found

KEPT: Final = 1000
"""Things that one beacon tells apart; of more the oldest is forgotten, and said anew when it comes again."""


class Said(NamedTuple):
    """What is said, and how often it was found without being said before."""

    found: Found
    repeats: int


class _Known:
    __slots__ = ("at", "found", "holds", "repeats")

    def __init__(self, found: Found, at: float, repeats: int) -> None:
        self.found = found
        self.at = at
        self.repeats = repeats
        self.holds = True


class Folding:
    """What one beacon has said. Times are monotonic seconds."""

    def __init__(self, options: Options, *, momentary: bool) -> None:
        self._options = options
        self._momentary = momentary
        self._known: dict[tuple[str, str], _Known] = {}
        self._first = True

    def sieve(self, found: Iterable[Found], now: float) -> list[Said]:
        """What of a look is said."""
        said: list[Said] = []
        here = set()
        silent = self._first and self._options.onchangeonly and not self._options.emitatstartup
        self._first = False
        for each in found:
            key = (each.tag, each.about)
            here.add(key)
            known = self._known.get(key)
            if known is None or not known.holds or known.found.same != each.same:
                repeats = 0 if known is None else known.repeats
                self._keep(key, _Known(each, now, 0))
                if not silent:
                    said.append(Said(each, repeats))
            elif not self._options.onchangeonly and now - known.at >= self._options.fold:
                said.append(Said(each, known.repeats))
                known.found, known.at, known.repeats = each, now, 0
            else:
                known.found = each
                known.repeats += 1
        return said + self._over(here, now)

    def unsaid(self, found: Found) -> None:
        """It did not get out: the next look that finds it says it."""
        known = self._known.get((found.tag, found.about))
        if known is not None:
            known.holds = False

    def _over(self, here: set[tuple[str, str]], now: float) -> list[Said]:
        """What was not found any more at this look."""
        said = []
        for key in [key for key in self._known if key not in here]:
            known = self._known[key]
            if not self._momentary:
                known.holds = False
                if not known.repeats:
                    del self._known[key]
            elif now - known.at >= self._options.fold:
                del self._known[key]
                if known.repeats:
                    # It stands for itself, so it is not counted among its repeats.
                    said.append(Said(known.found, known.repeats - 1))
        return said

    def _keep(self, key: tuple[str, str], known: _Known) -> None:
        self._known.pop(key, None)
        self._known[key] = known
        while len(self._known) > KEPT:
            del self._known[next(iter(self._known))]


def data_of(said: Said, device: str) -> tuple[str, dict[str, Any]]:
    """What goes behind the tag of the beacon, and the data of the event: flat, as Salt's are."""
    data = {"id": device, **said.found.data}
    return said.found.tag, data | {"_repeats": said.repeats} if said.repeats else data
