"""Whoever calls runners and wheels of a station that reacts, and what is heard of it."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.calls.call import CallRequest, Ended
from gateway.devices.policy import Operator, Role
from tests.peers.reacting import Reacting

ADA = Operator("ada", frozenset[Role]({"admin"}))
EVE = Operator("eve", frozenset[Role]({"viewer"}))
BOB = Operator("bob", frozenset[Role]({"operator"}))


async def called(station: Reacting, fun: str, *arg: Any, by: Operator = ADA, **kwarg: Any) -> Ended:
    """Call a runner and wait for its end."""
    calls = station.kept.own.calls
    jid = await calls.submit(CallRequest(fun=fun, arg=list(arg), kwarg=kwarg), by)
    async with asyncio.timeout(60):
        return await calls.wait(jid)


async def events(station: Reacting, pattern: str) -> list[tuple[str, dict[str, Any]]]:
    return [(event.tag, dict(event.data)) for event in await station.rooms.bus.history(pattern, 100)]
