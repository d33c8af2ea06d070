"""A device's own part of the mine: its functions are called, and what they return is handed over to its station.

One file for all devices: an agent refreshes its values with it, a gateway those of the devices it stands in for, and
the functions ``mine.*`` are made of it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from device_agent import loader
from device_agent.ended import FunctionFailed
from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.host import Host
from device_agent.own import Own
from device_agent.protocol import mine
from device_agent.protocol.messages import encode_value
from device_agent.trust.reach import reach_of

log = logging.getLogger(__name__)

FUNCTION_SECONDS: Final = 300.0
"""Most that one function of the mine may take."""

QUESTION_ROOM: Final = mine.DEVICE_BYTES
"""Values that go into one question."""

FIRST_SECONDS: Final = 30.0
"""Within so long after its start a device refreshes its values, not all of a site at once."""

AGAIN_SECONDS: Final = 60.0
"""After so long what was not handed over is tried again."""

JITTER: Final = 0.1
"""The part of the interval by which two turns differ."""


def there_is(fun: str) -> bool:
    """Whether a function can be in the mine: all but those of the mine itself, which would call each other."""
    if fun.startswith("mine."):
        return False
    try:
        loader.find(fun)
    except NotFound:
        return False
    return True


async def entry(call: mine.Call, host: Host, own: Own) -> mine.Entry:
    """The value of one function, with its name. Raises ``FunctionFailed``."""
    if not there_is(call.fun):
        raise FunctionFailed(f"there is no {call.fun[:130]} for the mine here", value=False)
    try:
        async with asyncio.timeout(FUNCTION_SECONDS):
            ended = await loader.call(call.fun, host, call.arg, call.kwarg, own)
    except TimeoutError:
        raise FunctionFailed(f"{call.fun} did not end in {FUNCTION_SECONDS:g} s", value=False) from None
    if ended.outcome != "ok" or ended.restart is not None:
        why = ended.why or f"the return code is {ended.retcode}" if ended.restart is None else "it restarts the device"
        raise FunctionFailed(f"{call.fun} failed: {why}", value=False)
    value = encode_value(ended.value)
    if len(value) > mine.VALUE_BYTES:
        raise FunctionFailed(f"{call.fun} returned {len(value)} bytes, at most {mine.VALUE_BYTES}", value=False)
    return mine.Entry(call.name, value, call.allow_tgt, call.allow_tgt_type)


async def keep(own: Own, entries: Sequence[mine.Entry], *, clear: bool = False) -> None:
    """Hand values over, in as many questions as it takes. Raises ``FunctionFailed``."""
    pages: list[list[mine.Entry]] = [[]]
    size = 0
    for each in entries:
        size += len(each.value) + len(each.allow_tgt)
        if pages[-1] and size > QUESTION_ROOM:
            pages.append([])
            size = len(each.value) + len(each.allow_tgt)
        pages[-1].append(each)
    bad: FunctionFailed | None = None
    for page in pages:
        if page or clear:
            try:
                await ask(own, mine.KEEP, mine.encode(mine.Keep(page, clear)))
            except FunctionFailed as error:
                # A value that the station does not take costs none of the others.
                bad = bad or error
                if not error.why.startswith(mine.BAD_TARGET):
                    break
            clear = False
    if bad is not None:
        raise bad


async def ask(own: Own, about: str, body: bytes = b"") -> bytes:
    """What the station answers. Raises ``FunctionFailed``."""
    try:
        return await own.station.ask(about, body)
    except Refused as refusal:
        raise FunctionFailed(f"{refusal.reason}: {refusal.detail}", value=False) from None
    except OutstationError as error:
        raise FunctionFailed(error.what, value=False) from None


async def refresh(calls: Sequence[mine.Call], host: Host, own: Own, *, clear: bool = False) -> list[str]:
    """Call the functions and hand over what they return; why some did not. Raises ``FunctionFailed``."""
    entries, failed = [], []
    for each in calls:
        try:
            entries.append(await entry(each, host, own))
        except FunctionFailed as error:
            log.warning("not in the mine name=%s error=%r", each.name, error.why)
            failed.append(error.why)
    await keep(own, entries, clear=clear)
    return failed


def from_pillar(pillar: Mapping[Any, Any], settings: object) -> list[mine.Call]:
    """What the pillar of a device has it keep beside its settings, which count before it.

    Nobody signed it for this device: what does more than look is not called for it, and named in the log.
    """
    try:
        found, lost = mine.sound_calls(pillar.get("mine_functions") or [])
    except Refused as refusal:
        log.warning("mine_functions in the pillar cannot be read reason=%s", refusal.reason)
        return []
    for why in lost:
        log.warning("not in the mine: an entry of mine_functions in the pillar cannot be read why=%r", why)
    own = settings if isinstance(settings, (dict, list)) else ()
    taken = []
    for call in found:
        if reach_of(call.fun, (call.arg, call.kwarg)) != "looks":
            log.warning("not in the mine: it does more than look, and is named in the pillar function=%r", call.fun)
        elif call.name not in own:
            taken.append(call)
    return taken


async def keep_fresh(
    turn: Callable[[], Awaitable[Any]], minutes: float, randomness: random.Random, *, first: float = FIRST_SECONDS
) -> None:
    """Take a turn soon after the start and then on the interval, for ever; 0 minutes: after the start alone.

    A turn that raises ``FunctionFailed`` is taken again soon.
    """
    wait = randomness.uniform(0.0, min(first, minutes * 60.0) if minutes else first)
    while True:
        await asyncio.sleep(wait)
        try:
            await turn()
        except FunctionFailed as error:
            log.warning("the mine was not refreshed, tried again error=%r", error.why)
            wait = randomness.uniform(0.5, 1.0) * (min(AGAIN_SECONDS, minutes * 60.0) if minutes else AGAIN_SECONDS)
            continue
        if not minutes:
            return
        wait = minutes * 60.0 * randomness.uniform(1.0 - JITTER, 1.0 + JITTER)
