"""Events in the API: the newest kept ones, and live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import Event
from gateway.api.event_stream import Wanted, server_sent, shown
from gateway.api.operation import EVENT_STREAM, Answer, Asked, Operation, ServerSent, whole
from gateway.bus import Bus

HISTORY = 10_000
KEEPALIVE_SECONDS = 10.0


class EventsApi:
    """Operations on events."""

    def __init__(self, *, bus: Bus, stopping: asyncio.Event) -> None:
        self._bus = bus
        self._stopping = stopping

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "GET",
                "/events",
                "Events whose tag matches",
                self._stream,
                query={
                    "tag": "glob over the whole tag, * crosses /; default *",
                    "history": "first so many kept ones, up to 10000; default 0",
                    "follow": "true (default): then live ones, for ever",
                },
                stream=True,
                server_sent=True,
            )
        ]

    async def _stream(self, asked: Asked) -> Answer:
        follow = asked.query.get("follow", "true")
        if follow not in ("true", "false"):
            raise UsageInvalid("not a yes or no", where="follow", found=follow[:40], allowed="true, false")
        tag = asked.query.get("tag", "*")
        if len(tag) > 512:
            raise UsageInvalid("the tag pattern is too long", where="tag", allowed="512 characters")
        history = whole(asked, "history", 0, HISTORY)
        if EVENT_STREAM in asked.headers.get("accept", ""):
            wanted = Wanted(tag, history, follow == "true", asked.headers.get("last-event-id", ""))
            return ServerSent(server_sent(self._bus, wanted, self._stopping, KEEPALIVE_SECONDS))
        return self._events(tag, history, follow=follow == "true")

    async def _events(self, tag: str, history: int, *, follow: bool) -> AsyncIterator[Mapping[str, Any] | None]:
        with self._bus.subscribe(tag) as subscriber:
            for event in await self._bus.history(tag, history) if history else []:
                yield shown(event)
            # An empty line says that listening has begun.
            yield None
            told = 0
            while follow and not self._stopping.is_set():
                if subscriber.missed > told:
                    told = subscriber.missed
                    yield {"tag": "outstation/missed", "data": {"missed": told}, "_stamp": "", "site": ""}
                heard: Event | None = None
                with suppress(TimeoutError):
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        heard = await subscriber.queue.get()
                # Outside of the time limit: how long a slow reader takes to be told does not end his stream.
                yield None if heard is None else shown(heard)
