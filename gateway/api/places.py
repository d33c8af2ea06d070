"""Who may hold how many connections at one door of the API. Pure: no I/O.

Each connection holds a place. Three kinds of holders have places of their own, so that none can take those of another:
strangers (no token yet, known by their address), users, and admins. When the strangers' places are full, the oldest
stranger of the address that holds most gives way: a client with a token says it within one round trip.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

PLACES = 512
"""Connections at one door. Fewer where the station may open few files: an eighth of those."""

SHARE_OF_FILES = 8

REFUSED_AT_ONCE = 32
"""Connections beside the places that are told why they are refused; more are closed without a word."""

Kind = Literal["stranger", "user", "admin", "refused"]


@dataclass(eq=False)
class Place:
    """What one connection holds. ``leave`` ends the connection at once."""

    kind: Kind
    holder: str
    leave: Callable[[], None]
    streams: bool = False
    """Whether its answer is a stream, which may go on for ever."""


class Places:
    """The places of one door."""

    def __init__(self, places: Callable[[], int]) -> None:
        self._places = places
        self._held: dict[Place, None] = {}
        """In the order in which they were taken."""
        self._kinds: Counter[Kind] = Counter()
        self._holders: Counter[tuple[Kind, str]] = Counter()
        self._streams: Counter[tuple[Kind, str]] = Counter()
        self.refused = 0
        """Connections that were turned away, or gave way, since the start."""

    @property
    def held(self) -> int:
        """Places that are taken."""
        return len(self._held) - self._kinds["refused"]

    @property
    def streams(self) -> int:
        """Places whose answer is a stream."""
        return self._streams.total()

    def take(self, kind: Kind, holder: str, leave: Callable[[], None]) -> Place | None:
        """A place for a new connection; None when the share of its kind, or of its holder, is used up."""
        place = Place(kind, holder, leave)
        if not self._fits(place) and (kind != "stranger" or not self._oldest_gives_way(holder)):
            self.refused += kind != "refused"
            return None
        self._add(place)
        return place

    def move(self, place: Place, kind: Kind, holder: str) -> bool:
        """The holder of a place is known better now. False when it has no share left, and is refused."""
        if (place.kind, place.holder) == (kind, holder):
            return True
        if place not in self._held:
            return False
        self.free(place)
        place.kind, place.holder = kind, holder
        if self._fits(place):
            self._add(place)
            return True
        self.refused += 1
        place.kind = "refused"
        if self._fits(place):
            self._add(place)
        else:
            place.leave()
        return False

    def begin_stream(self, place: Place) -> bool:
        """Whether the holder of a place may have one more stream: half as many as it may have connections."""
        who = (place.kind, place.holder)
        if self._streams[who] >= self._places() // (2 if place.kind == "admin" else 8):
            return False
        place.streams = True
        self._streams[who] += 1
        return True

    def end_stream(self, place: Place) -> None:
        """The answer on this connection is complete."""
        if place.streams:
            place.streams = False
            self._streams[place.kind, place.holder] -= 1
            if not self._streams[place.kind, place.holder]:
                del self._streams[place.kind, place.holder]

    def free(self, place: Place) -> None:
        """The connection has ended."""
        self.end_stream(place)
        if place in self._held:
            del self._held[place]
            self._kinds[place.kind] -= 1
            self._holders[place.kind, place.holder] -= 1
            if not self._holders[place.kind, place.holder]:
                del self._holders[place.kind, place.holder]

    def _add(self, place: Place) -> None:
        self._held[place] = None
        self._kinds[place.kind] += 1
        self._holders[place.kind, place.holder] += 1

    def _fits(self, place: Place) -> bool:
        places = self._places()
        held = self._holders[place.kind, place.holder]
        match place.kind:
            case "admin":
                return self.held < places
            case "user":
                # An eighth is kept for admins, and three eighths for strangers, who may be any of both.
                return held < places // 4 and self._kinds["user"] < places // 2
            case "stranger":
                return held < places // 8 and self._kinds["stranger"] < places * 3 // 8
            case "refused":
                return self._kinds["refused"] < REFUSED_AT_ONCE

    def _oldest_gives_way(self, holder: str) -> bool:
        """End the oldest stranger of ``holder`` when its share is used up, otherwise of those that hold most."""
        held = {name: count for (kind, name), count in self._holders.items() if kind == "stranger"}
        most = max(held.values(), default=0)
        crowded = {holder} if held.get(holder, 0) >= self._places() // 8 else {n for n in held if held[n] == most}
        strangers = (place for place in self._held if place.kind == "stranger" and place.holder in crowded)
        oldest = next(strangers, None)
        if oldest is None:
            return False
        self.free(oldest)
        self.refused += 1
        oldest.leave()
        return True


def places_now() -> int:
    """Places of one door, as many files as the process may open now."""
    return max(8, min(PLACES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE_OF_FILES))
