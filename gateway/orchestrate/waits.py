"""``salt.wait_for_event``: what has happened is read from the disk, and is not missed in a moment or by a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from device_agent.clock import Clock
from device_agent.protocol import tags
from device_agent.protocol.messages import Event
from gateway.bus import Bus
from gateway.metrics import Metrics
from gateway.orchestrate.book import Since
from gateway.orchestrate.deeds import WaitDeed
from gateway.orchestrate.results import Bare
from gateway.reactor.seen import Seen
from gateway.store.reader import Reader

LOOK_SECONDS: Final = 5.0


class Waits:
    """Waits for events."""

    def __init__(self, *, bus: Bus, reader: Reader, metrics: Metrics, clock: Clock) -> None:
        self._bus = bus
        self._reader = reader
        self._metrics = metrics
        self._clock = clock

    async def seen(self, deed: WaitDeed, since: Since, begun: float) -> Bare:
        """Wait until every one was seen, or the time is over. ``begun`` is when the wait began, before any restart."""
        left, found = list(deed.ids), list[Any]()
        # What passed before a restart only the wall clock knows; from here on one that is set changes nothing.
        over = self._clock.monotonic() + deed.seconds - max(0.0, self._clock.wall() - begun)
        looked = Seen(self._reader, self._metrics)
        looked.numbers = {"event": since.event, "outcome": since.outcome}
        with self._bus.subscribe(deed.pattern, queues=lambda _: False) as news:
            while True:
                news.heard.clear()
                await self._look(deed, looked, left, found)
                seconds = over - self._clock.monotonic()
                if not left or seconds <= 0:
                    return self._ended(left, found, begun)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(seconds, LOOK_SECONDS)):
                        await news.heard.wait()

    async def _look(self, deed: WaitDeed, looked: Seen, left: list[Any], found: list[Any]) -> None:
        more = True
        while more and left:
            page = await self._bus.kept_after(looked.numbers["event"], deed.pattern)
            looked.numbers["event"] = page.last
            returns = await looked.next("outcome", lambda tag: tags.matches(deed.pattern, tag))
            looked.numbers["outcome"] = returns.last
            more = page.more or returns.more
            for event in [*(event for _, event in page.events), *(each.event for each in returns.found)]:
                for seen in _seen(event, deed.key, left):
                    left.remove(seen)
                    found.append(seen)

    def _ended(self, left: list[Any], found: list[Any], begun: float) -> Bare:
        changes = {"minions_seen": found} if found else {}
        if not left:
            seconds = self._clock.wall() - begun
            return Bare(result=True, comment=f"All events seen in {seconds} seconds.", changes=changes)
        missing = ", ".join(map(str, left[:100]))
        return Bare(result=False, comment=f"Timeout value reached. Not seen: {missing}", changes=changes)


def _seen(event: Event, key: str, left: list[Any]) -> list[Any]:
    """Which of those that are left an event names."""
    inner = event.data.get("data")
    value = event.data.get(key)
    if value is None and isinstance(inner, Mapping):
        value = inner.get(key)
    if isinstance(value, list):
        return [each for each in dict.fromkeys(map(_hashable, left)) if each in value]
    return [value] if value is not None and value in left else []


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, bytes)) else str(value)
