"""Calls of the station itself in the API: runners and wheels, made, listed, and watched to their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from device_agent.errors import NotFound, UsageInvalid
from gateway.api.operation import Answer, Asked, Operation, whole
from gateway.bus import Bus
from gateway.calls.binding import words
from gateway.calls.book import Kept
from gateway.calls.call import KINDS, CallRequest, shown
from gateway.calls.calls import Calls
from gateway.devices.policy import Operator

PAGE = 1000
KEEPALIVE_SECONDS = 10.0


class CallsApi:
    """The operations."""

    def __init__(self, calls: Calls, bus: Bus) -> None:
        self._calls = calls
        self._bus = bus

    def operations(self) -> list[Operation]:
        """The table. Each function has its own rule of who may call it."""
        return [
            Operation(
                "POST",
                "/calls",
                "Call a runner or a wheel; it is on the station's disk when this is answered",
                self._make,
                body=CallRequest,
                status=201,
                needs="view",
                action="call",
                own_row=True,
            ),
            Operation(
                "GET",
                "/calls",
                "The newest calls",
                self._list,
                query={"limit": "at most so many, up to 1000; default 50"},
            ),
            Operation(
                "GET", "/calls/functions", "The functions there are", self._functions, query={"kind": "runner or wheel"}
            ),
            Operation("GET", "/calls/{jid}", "One call, with what it returned", self._show),
            Operation(
                "GET",
                "/calls/{jid}/watch",
                "The same, as its steps end and when it has ended",
                self._watch,
                stream=True,
            ),
        ]

    async def _make(self, asked: Asked) -> Answer:
        jid = await self._calls.submit(asked.body, asked.operator)
        return await self._one(jid, asked.operator)

    async def _list(self, asked: Asked) -> Answer:
        kept = await self._calls.book.newest(whole(asked, "limit", 50, PAGE))
        return {"calls": [self._view(each, asked.operator) for each in kept]}

    async def _functions(self, asked: Asked) -> Answer:
        wanted = asked.query.get("kind")
        if wanted not in (None, *KINDS):
            raise UsageInvalid("no such kind of call", where="kind", found=wanted, allowed=", ".join(KINDS))
        listed = [
            {
                "kind": kind,
                "fun": name,
                "arguments": words(function.run),
                "needs": function.need,
                "refused": function.refused,
                "doc": function.doc,
            }
            for kind in KINDS
            if wanted in (None, kind)
            for name, function in sorted(self._calls.functions.of(kind).items())
        ]
        return {"functions": listed}

    async def _show(self, asked: Asked) -> Answer:
        return await self._one(asked.path["jid"], asked.operator)

    async def _watch(self, asked: Asked) -> Answer:
        jid = asked.path["jid"]
        await self._one(jid, asked.operator)
        return self._watching(jid, asked.operator)

    async def _watching(self, jid: str, operator: Operator) -> AsyncIterator[Mapping[str, Any] | None]:
        with self._bus.subscribe(f"salt/*/{jid}/*") as news:
            while (under := self._calls.under_way(jid)) is not None:
                try:
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        event = await news.queue.get()
                except TimeoutError:
                    yield None
                    continue
                if event.tag.startswith(f"salt/job/{jid}/prog/"):
                    yield {**await self._one(jid, operator), "progress": event.data.get("data")}
                elif event.tag.endswith("/ret"):
                    # It is on disk; whoever made it is told in a moment.
                    await under.done.wait()
        yield await self._one(jid, operator)

    async def _one(self, jid: str, operator: Operator) -> dict[str, Any]:
        kept = await self._calls.book.one(jid)
        if kept is None:
            raise NotFound(f"no call {jid[:80]}", error_id="calls.unknown", hint="outstation runner jobs.list_jobs")
        return self._view(kept, operator)

    def _view(self, kept: Kept, operator: Operator) -> dict[str, Any]:
        call, ended = kept.call, kept.ended
        private = self._calls.private(call.jid, operator)
        return {
            "jid": call.jid,
            "kind": call.kind,
            "fun": call.fun,
            "arg": call.arg,
            "kwarg": shown(call.kwarg),
            "user": call.user,
            "why": call.why,
            "parent": call.parent,
            "accepted": call.accepted,
            "state": ended.state,
            "value": ended.value if private is None else private,
            "retcode": ended.retcode,
            "ended": ended.ended or None,
        }
