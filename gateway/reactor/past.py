"""What happened between two moments, as the reactor reads it: events and outcomes, in the order of their stamps.

A page looks at so many rows and no more, whatever it finds in them, and says where the next one begins. What came late
from a site stands among what happened then, as far as the rows of one page reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from device_agent.protocol import tags
from device_agent.protocol.messages import Event, decode_stored
from gateway.reactor.seen import Seen, Source
from gateway.store.reader import Reader

ROWS: Final = 500
"""Most rows of each table that a page has."""

SPAN: Final = 5000
"""Most rows of each table that a page looks at: their stamps are in no index."""

_BOUNDS: Final[dict[Source, str]] = {
    "event": "SELECT (SELECT coalesce(min(id), 1) FROM events), (SELECT coalesce(max(id), 0) FROM events)",
    "outcome": "SELECT (SELECT coalesce(min(id), 1) FROM outcomes), (SELECT coalesce(max(id), 0) FROM outcomes)",
}
_ROWS: Final[dict[Source, str]] = {
    "event": "SELECT id, stamp, tag, '' FROM events"
    " WHERE id > ? AND id <= ? AND stamp >= ? AND stamp < ? ORDER BY id LIMIT ?",
    "outcome": "SELECT id, ended, jid, device FROM outcomes"
    " WHERE id > ? AND id <= ? AND ended >= ? AND ended < ? ORDER BY id LIMIT ?",
}
_EVENT = "SELECT tag, data, stamp, site FROM events WHERE id = ?"

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Place(Struct, frozen=True, forbid_unknown_fields=True):
    """How far was looked: the last row of each table."""

    event: Number = 0
    outcome: Number = 0


class Row(NamedTuple):
    """An event or an outcome without its data."""

    source: Source
    number: int
    stamp: float
    tag: str


class Stretch(Struct, frozen=True):
    """Rows of one table, where their page ends, and whether the table goes on after it."""

    rows: list[Row]
    end: int
    more: bool


class Stretches:
    """One page of both tables. Iterating moves ``place`` along, behind the row that was given last."""

    def __init__(self, place: Place, events: Stretch, outcomes: Stretch) -> None:
        self._at = {"event": place.event, "outcome": place.outcome}
        self._of: dict[Source, Stretch] = {"event": events, "outcome": outcomes}
        self._next: dict[Source, int] = {"event": 0, "outcome": 0}

    def __iter__(self) -> Iterator[Row]:
        """The rows by their stamps, until one table has no more of them here and goes on elsewhere."""
        while True:
            heads: list[Row] = []
            for source, stretch in self._of.items():
                if self._next[source] < len(stretch.rows):
                    heads.append(stretch.rows[self._next[source]])
                elif stretch.more:
                    return
            if not heads:
                return
            row = min(heads, key=lambda each: each.stamp)
            yield row
            # Who stops before this has not dealt with the row.
            self._next[row.source] += 1
            self._at[row.source] = row.number

    def _all(self, source: Source) -> bool:
        return self._next[source] == len(self._of[source].rows)

    @property
    def place(self) -> Place:
        """Where the next page begins."""
        reached = {name: self._of[name].end if self._all(name) else self._at[name] for name in self._of}
        return Place(reached["event"], reached["outcome"])

    @property
    def more(self) -> bool:
        """Whether there may be more behind it."""
        return any(stretch.more or not self._all(source) for source, stretch in self._of.items())


class Past:
    """Reads what is kept."""

    def __init__(self, reader: Reader, seen: Seen) -> None:
        self._reader = reader
        self._seen = seen

    async def page(self, place: Place, since: float, until: float) -> Stretches:
        """What comes after a place, from ``since`` on and before ``until`` (wall seconds). Raises ``StationFailed``."""
        events = await self._stretch("event", place.event, since, until)
        return Stretches(place, events, await self._stretch("outcome", place.outcome, since, until))

    async def event(self, row: Row) -> Event | None:
        """The whole of it; None where it gave way meanwhile. Raises ``StationFailed``."""
        if row.source == "outcome":
            return await self._seen.returned(row.number)
        rows = await self._reader.rows(_EVENT, (row.number,))
        if not rows:
            return None
        ((tag, data, stamp, site),) = rows
        return Event(tag=tag, data=decode_stored(data), stamp=stamp, site=site)

    async def _stretch(self, source: Source, after: int, since: float, until: float) -> Stretch:
        ((oldest, newest),) = await self._reader.rows(_BOUNDS[source])
        after = max(after, oldest - 1)
        end = min(after + SPAN, newest)
        found = await self._reader.rows(_ROWS[source], (after, end, since, until, ROWS))
        rows = [Row(source, number, at, _tag(source, name, device)) for number, at, name, device in found]
        end = rows[-1].number if len(rows) == ROWS else max(after, end)
        return Stretch(rows, end, end < newest)


def _tag(source: Source, name: str, device: str) -> str:
    return name if source == "event" else tags.job_return(name, device)
