"""What has happened since: events and outcomes of the store, in the order in which they were committed.

The reactor reads them from the disk and not from the bus, so that what happened while it was busy, or just before the
station was killed, is still there. Returns are kept as outcomes, and are events again here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from device_agent.protocol import tags
from device_agent.protocol.messages import Event, Job, decode_job, decode_stored
from gateway.calls.call import Call
from gateway.jobs.record import COLUMNS, outcome_record, return_event
from gateway.metrics import Metrics
from gateway.store.reader import Reader

Source = Literal["event", "outcome"]
SOURCES: Final[tuple[Source, ...]] = ("event", "outcome")
PAGE: Final = 500
LAST: Final = 2**63 - 1
"""The largest number that a row can have."""

_NEWEST: Final[dict[Source, str]] = {
    "event": "SELECT coalesce(max(id), 0) FROM events",
    "outcome": "SELECT coalesce(max(id), 0) FROM outcomes",
}
_EVENTS = (
    "SELECT id, tag, data, stamp, site, jid FROM events LEFT JOIN event_causes ON event = id"
    " WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
)
_OUTCOMES = "SELECT id, jid, device FROM outcomes WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
_OUTCOME = f"SELECT {COLUMNS} FROM outcomes WHERE id = ?"  # noqa: S608 - the names of this program
_JOB = "SELECT body FROM jobs WHERE jid = ?"
_CALL = "SELECT body FROM calls WHERE jid = ?"


_call = msgspec.msgpack.Decoder(Call)


class Happened(Struct, frozen=True):
    """An event by the row that it came from, and the call of this station that fired it, where one did."""

    source: Source
    number: int
    event: Event
    call: str = ""


class Page(Struct, frozen=True):
    """What of a page has a tag that is wanted, where the page ends, and whether there may be more."""

    found: list[Happened]
    last: int
    more: bool


class Seen:
    """Reads on from ``numbers``, which whoever has dealt with a page moves to its end."""

    def __init__(self, reader: Reader, metrics: Metrics) -> None:
        self._reader = reader
        self._metrics = metrics
        self.numbers: dict[Source, int] = dict.fromkeys(SOURCES, 0)

    async def open(self) -> None:
        """Go on where the last run was; a station that had no rules before begins with what comes now."""
        kept: dict[str, int] = dict(await self._reader.rows("SELECT source, number FROM reactor_seen"))
        for source, newest in (await self.newest()).items():
            self.numbers[source] = min(kept.get(source, newest), newest)

    async def newest(self) -> dict[Source, int]:
        """The newest row of each source. Raises ``StationFailed``."""
        return {source: (await self._reader.rows(_NEWEST[source]))[0][0] for source in SOURCES}

    async def next(self, source: Source, wanted: Callable[[str], bool], until: int = LAST) -> Page:
        """The next page, and nothing behind the row ``until``. Raises ``StationFailed``."""
        return await (self._events(wanted, until) if source == "event" else self._outcomes(wanted, until))

    async def _events(self, wanted: Callable[[str], bool], until: int) -> Page:
        before = self.numbers["event"]
        rows = await self._reader.rows(_EVENTS, (before, until, PAGE))
        if rows and rows[0][0] > before + 1:
            # The oldest kept events gave way before anybody looked at them.
            self._metrics.add("reactor_events_missed", rows[0][0] - before - 1)
            self._metrics.refused("reactor", "events_gone", "", f"{rows[0][0] - before - 1} events")
        found = [
            Happened("event", number, Event(tag=tag, data=decode_stored(data), stamp=at, site=site), jid or "")
            for number, tag, data, at, site, jid in rows
            if wanted(tag)
        ]
        return Page(found, rows[-1][0] if rows else before, len(rows) == PAGE)

    async def _outcomes(self, wanted: Callable[[str], bool], until: int) -> Page:
        before = self.numbers["outcome"]
        rows = await self._reader.rows(_OUTCOMES, (before, until, PAGE))
        found = []
        for number, jid, device in rows:
            if wanted(tags.job_return(jid, device)) and (event := await self.returned(number)) is not None:
                found.append(Happened("outcome", number, event))
        return Page(found, rows[-1][0] if rows else before, len(rows) == PAGE)

    async def returned(self, number: int) -> Event | None:
        """The event that an outcome is; None where it is no longer kept. Raises ``StoreUnreadable``."""
        rows = await self._reader.rows(_OUTCOME, (number,))
        if not rows:
            return None
        record = outcome_record(rows[0])
        return return_event(record, await self.job(record.jid))

    async def job(self, jid: str) -> Job | None:
        """A job that is known here."""
        rows = await self._reader.rows(_JOB, (jid,))
        return decode_job(rows[0][0]) if rows else None

    async def why(self, happened: Happened) -> str:
        """Why the job or the call is there that an event is of; empty where it is of none."""
        jid = happened.call or jid_of(happened.event)
        if not jid:
            return ""
        if not happened.call and (job := await self.job(jid)) is not None:
            return job.why
        rows = await self._reader.rows(_CALL, (jid,))
        return _call.decode(rows[0][0]).why if rows else ""


def jid_of(event: Event) -> str:
    """The job or call that an event is of: by its tag, or because a function of it sent it. Empty for none."""
    if tags.is_jid(event.tag):
        return event.tag
    words = event.tag.split("/")
    if len(words) > 2 and words[0] == "salt" and words[1] in ("job", "run", "wheel"):
        return words[2]
    inner: Any = event.data.get("data")
    for data in (event.data, inner if isinstance(inner, dict) else {}):
        sent = data.get("__pub_jid")
        if isinstance(sent, str):
            return sent
    return ""
