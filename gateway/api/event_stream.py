"""Events as server-sent events: whoever comes back says which one he had last, and hears on from there.

What is kept is read from the disk, page by page, so a slow listener is behind and misses nothing that is still there.
What is not kept (returns, which are their job's outcomes) waits in a bounded queue and has no id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from device_agent.clock import stamp
from device_agent.protocol.messages import Event
from gateway.bus import SUBSCRIBER_EVENTS, Bus
from gateway.event_shape import salt_data
from gateway.jobs.record import is_only_heard
from gateway.site_event import origin_of

RETRY = b"retry: 1000\n\n"
KEEPALIVE = b":\n\n"
NUMBER_DIGITS = 18

_json = msgspec.json.Encoder()


@dataclass(frozen=True)
class Wanted:
    """What a listener asked for."""

    tag: str
    history: int
    follow: bool
    last_id: str
    """Of the event that he had last; empty when he begins."""


def shown(event: Event) -> dict[str, Any]:
    """An event as the API tells it."""
    fields = {"tag": event.tag, "data": salt_data(event), "_stamp": stamp(event.stamp), "site": event.site}
    origin = origin_of(event)
    return {**fields, "origin": origin} if origin else fields


async def server_sent(
    bus: Bus, wanted: Wanted, stopping: asyncio.Event, keepalive_seconds: float
) -> AsyncIterator[bytes]:
    """The whole stream, piece by piece."""
    with bus.subscribe(wanted.tag, queues=is_only_heard) as subscriber:
        newest = await bus.newest()
        at = _resumed(bus.epoch, wanted.last_id, newest)
        begins = at is None and wanted.history > 0
        history = await bus.numbered_history(wanted.tag, wanted.history) if begins else []
        # With the first word listening has begun, and it begins with what comes after the newest.
        yield RETRY
        if at is None and wanted.last_id:
            yield _missed(None, "the id is none of this station's store")
        for number, event in history:
            yield _kept(bus.epoch, number, event)
        if at is None:
            at = max(newest, history[-1][0]) if history else newest
        told, waiting = 0, deque[Event]()
        while not stopping.is_set():
            subscriber.heard.clear()
            page = await bus.kept_after(at, wanted.tag)
            if page.gone:
                yield _missed(page.gone, "they are no longer kept")
            room = SUBSCRIBER_EVENTS - len(waiting)
            waiting.extend(subscriber.queue.get_nowait() for _ in range(min(room, subscriber.queue.qsize())))
            for number, event in page.events:
                while waiting and waiting[0].stamp <= event.stamp:
                    yield _piece(waiting.popleft())
                yield _kept(bus.epoch, number, event)
            at = page.last
            if page.more:
                continue
            while waiting:
                yield _piece(waiting.popleft())
            if subscriber.missed > told:
                yield _missed(subscriber.missed - told, "the listener is slow")
                told = subscriber.missed
            if not wanted.follow:
                return
            try:
                async with asyncio.timeout(keepalive_seconds):
                    await subscriber.heard.wait()
            except TimeoutError:
                yield KEEPALIVE


def _resumed(store: str, last_id: str, newest: int) -> int | None:
    """The number of the event that the listener had last; None when there is none such in this store."""
    epoch, _, number = last_id.rpartition("-")
    if epoch != store or not (number.isascii() and number.isdigit()) or len(number) > NUMBER_DIGITS:
        return None
    return int(number) if int(number) <= newest else None


def _kept(epoch: str, number: int, event: Event) -> bytes:
    return b"id: %s-%d\n%s" % (epoch.encode(), number, _piece(event))


def _piece(event: Event) -> bytes:
    # JSON has no line break in it, so it is one line whatever a device put into its event.
    return b"data: %s\n\n" % _json.encode(shown(event))


def _missed(count: int | None, why: str) -> bytes:
    return b"event: missed\ndata: %s\n\n" % _json.encode({"missed": count, "why": why})
