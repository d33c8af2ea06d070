"""Events of this station: fire, subscribe, and keep on disk what must be kept. What a subscriber sees is committed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from device_agent.clock import Clock
from device_agent.protocol import tags
from device_agent.protocol.messages import Event, decode_stored, encode_value
from gateway.metrics import Metrics
from gateway.site_event import SiteEvent
from gateway.spool import ledger
from gateway.spool.queue import Spool
from gateway.spool.streams import CLASS_OF, Class
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

SUBSCRIBER_EVENTS = 10_000
KEPT_EVENTS = 100_000
PRUNE_EVERY = 5_000
HISTORY_PAGE = 500
NEWEST = 2**62

_KEEP = "INSERT INTO events (tag, data, stamp, site) VALUES (?, ?, ?, ?)"
_KEEP_OF_SITE = "INSERT INTO events (tag, data, stamp, site, origin) VALUES (?, ?, ?, ?, ?)"


@dataclass
class Subscriber:
    """One listener: a bounded queue, and how many events it missed by being slow."""

    pattern: str
    queue: asyncio.Queue[Event] = field(default_factory=lambda: asyncio.Queue(maxsize=SUBSCRIBER_EVENTS))
    missed: int = 0
    queues: Callable[[Event], bool] | None = None
    """Which of those that match are put into the queue; None: all."""

    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each event that matches, also one for which there is no room."""


def _event(tag: str, data: bytes, stamp: float, site: str, origin: str | None) -> Event:
    event = Event(tag=tag, data=decode_stored(data), stamp=stamp, site=site)
    return SiteEvent.of(event, origin) if origin else event


def _is_not() -> bool:
    """Where nobody looks after the disk."""
    return False


class KeptPage(NamedTuple):
    """Kept events with their numbers, which rise in the order of the commits."""

    events: list[tuple[int, Event]]
    last: int
    """How far was looked; where the next page begins."""

    gone: int
    """How many before them, of whatever tag, are no longer kept."""

    more: bool
    """Whether there may be more of them already."""


class Bus:
    """Live events to subscribers, and the newest ``KEPT_EVENTS`` on disk."""

    def __init__(
        self,
        writer: Writer,
        reader: Reader,
        spool: Spool,
        metrics: Metrics,
        clock: Clock,
        site: str,
        is_scarce: Callable[[], bool] = _is_not,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._spool = spool
        self._metrics = metrics
        self._clock = clock
        self._site = site
        self._subscribers: list[Subscriber] = []
        self._is_scarce = is_scarce
        self._unkept: Counter[tuple[Class, str]] = Counter()
        self._since_prune = 0

    @property
    def site(self) -> str:
        """The station whose events these are."""
        return self._site

    @property
    def epoch(self) -> str:
        """The name of the store: the numbers of kept events mean nothing in another."""
        return self._spool.epoch

    @property
    def listened(self) -> bool:
        """Whether anybody subscribes at all: building events for nobody is work for nothing."""
        return bool(self._subscribers)

    def event(self, tag: str, data: dict[str, object]) -> Event:
        """An event of this station, stamped now."""
        return Event(tag=tag, data=data, stamp=self._clock.wall(), site=self._site)

    def keeping(self, events: Sequence[Event]) -> list[Statement]:
        """The statements that put events of this station on disk; commit them, then ``publish``."""
        return [(_KEEP, [(event.tag, encode_value(event.data), event.stamp, event.site) for event in events])]

    def keeping_of_sites(self, events: Sequence[SiteEvent]) -> list[Statement]:
        """The same for events that came up from sites, with their origins."""
        rows = [(event.tag, encode_value(event.data), event.stamp, event.site, event.origin) for event in events]
        return [(_KEEP_OF_SITE, rows)]

    async def fire(self, events: Sequence[Event], *, upward: bool = True) -> None:
        """Keep events of this station, spool them for the masters, and publish them. A failed commit is counted.

        Events about jobs are not ``upward``: a master makes its own from the items that tell it of the job.
        """
        try:
            await self.accept(events, upward=upward)
        except StoreFailed:
            self._metrics.add("events_lost_store", len(events))
            if upward:
                # In memory until the next commit that succeeds: then it is in the ledger.
                reason = "disk_full" if self._is_scarce() else "store_failed"
                self._unkept.update((CLASS_OF[row.stream], reason) for row in self._spool.encoded(events))

    async def accept(
        self, events: Sequence[Event], beside: Sequence[Statement] = (), *, upward: bool | Sequence[Event] = True
    ) -> None:
        """The same for events whose sender is told: ``beside`` is in the commit. Raises ``StoreFailed``.

        ``upward`` may be those of them that go up; a full disk takes the others of these no more either.
        """
        if not events:
            return
        rising = upward if not isinstance(upward, bool) else events if upward else ()
        if upward is not False and self._is_scarce():
            raise StoreFailed("the disk is full", found="no room for events", hint="outstation check")
        await self._commit([*self.keeping(events), *self._spool.adding(rising), *beside])
        self._spool.added()
        self.publish(events)
        await self.kept(len(events))

    async def settle(self) -> None:
        """Put into the ledger what could not be kept before."""
        if self._unkept:
            with suppress(StoreFailed):
                await self._commit([])

    async def _commit(self, statements: Sequence[Statement]) -> None:
        unkept, self._unkept = self._unkept, Counter()
        counted = [each for (name, reason), count in unkept.items() for each in ledger.lost(name, reason, count)]
        try:
            await self._writer.commit([*statements, *counted])
        except StoreFailed:
            self._unkept += unkept
            raise

    async def kept(self, count: int) -> None:
        """So many events were put on disk: from time to time the oldest give way."""
        self._since_prune += count
        if self._since_prune >= PRUNE_EVERY:
            self._since_prune = 0
            try:
                await self.prune()
            except StoreFailed as error:
                log.error("old events not pruned error=%s", error.found)

    def publish(self, events: Sequence[Event]) -> None:
        """Hand committed events to those who listen."""
        self._metrics.add("events", len(events))
        for subscriber in self._subscribers:
            for event in events:
                if tags.matches(subscriber.pattern, event.tag):
                    subscriber.heard.set()
                    if subscriber.queues is not None and not subscriber.queues(event):
                        continue
                    try:
                        subscriber.queue.put_nowait(event)
                    except asyncio.QueueFull:
                        subscriber.missed += 1
                        self._metrics.add("events_missed_slow_subscriber")

    @contextmanager
    def subscribe(self, pattern: str, queues: Callable[[Event], bool] | None = None) -> Iterator[Subscriber]:
        """Listen to tags that match, until the context is left."""
        subscriber = Subscriber(pattern, queues=queues)
        self._subscribers.append(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.remove(subscriber)

    async def history(self, pattern: str, count: int) -> list[Event]:
        """The newest kept events that match, oldest first."""
        return [event for _, event in await self.numbered_history(pattern, count)]

    async def numbered_history(self, pattern: str, count: int) -> list[tuple[int, Event]]:
        """The same, each with its number."""
        found: list[tuple[int, Event]] = []
        before = NEWEST
        while len(found) < count:
            rows = await self._reader.rows(
                "SELECT id, tag, data, stamp, site, origin FROM events WHERE id < ? ORDER BY id DESC LIMIT ?",
                (before, HISTORY_PAGE),
            )
            for row, *kept in rows:
                before = row
                if tags.matches(pattern, kept[0]) and len(found) < count:
                    found.append((row, _event(*kept)))
            if len(rows) < HISTORY_PAGE:
                break
        return found[::-1]

    async def newest(self) -> int:
        """The number of the newest kept event; 0 when none ever was."""
        rows = await self._reader.rows("SELECT coalesce(max(id), 0) FROM events")
        number: int = rows[0][0]
        return number

    async def kept_after(self, number: int, pattern: str) -> KeptPage:
        """A page of the kept events after this number that match."""
        rows = await self._reader.rows(
            "SELECT id, tag, data, stamp, site, origin FROM events WHERE id > ? ORDER BY id LIMIT ?",
            (number, HISTORY_PAGE),
        )
        return KeptPage(
            events=[(row, _event(*kept)) for row, *kept in rows if tags.matches(pattern, kept[0])],
            last=rows[-1][0] if rows else number,
            gone=rows[0][0] - number - 1 if rows else 0,
            more=len(rows) == HISTORY_PAGE,
        )

    async def prune(self) -> None:
        """Let go of all but the newest kept events; they were history, whoever needed them has had them."""
        await self._writer.commit(
            [("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", [(KEPT_EVENTS,)])]
        )
