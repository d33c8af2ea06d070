"""How a device's events get to its station: from flash, or at once where there is none."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Final, Protocol

from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.event_file import EventFile
from device_agent.protocol import limits
from device_agent.protocol.device_events import (
    KEEP,
    PAGE_EVENTS,
    Fired,
    Heard,
    Page,
    check,
    decode_heard,
    encode,
    sendable,
)
from device_agent.questions import Station

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 12.0
"""After so long the page is made anew; in between it is said again."""

AGAIN_FIRST_SECONDS: Final = 1.0
UNSOUND: Final = frozenset({"malformed", "oversized", "wrong_type", "question_too_large"})
"""What no repeat mends: a station of another release that cannot read it."""


class Events(Protocol):
    """Where a device's events go."""

    async def fire(self, device: str, tag: str, data: dict[str, Any], *, local: bool = False) -> None:
        """Give an event to the station for certain, and ``local`` to nobody above it.

        Raises ``Refused`` and ``OutstationError``.
        """


class Handed:
    """Each event is handed to the station at once, one after the other: nothing is kept here.

    ``outbox`` tells a repeat on a way that loses answers; within one process it is empty.
    """

    def __init__(self, station: Station, clock: Clock, outbox: bytes = b"") -> None:
        self._station = station
        self._clock = clock
        self._outbox = outbox
        self._sequence = 0
        self._turn = asyncio.Lock()

    async def fire(self, device: str, tag: str, data: dict[str, Any], *, local: bool = False) -> None:
        """The event is on the station's disk when this returns. Raises ``Refused`` and ``OutstationError``."""
        data = sendable(data)
        check(device, tag, data)
        async with self._turn:
            self._sequence += 1
            event = Fired(self._sequence, tag, data, self._clock.wall(), local)
            heard = decode_heard(await self._station.ask(KEEP, encode(Page(events=[event], outbox=self._outbox))))
        for reason in heard.refused:
            raise Refused(reason, f"the station takes no {tag[:80]}")


class EventOutbox:
    """The events of an agent: on flash when they are fired, and there until the station says that it has them."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._kept = EventFile(path)
        self.health = self._kept.health
        self._clock = clock

    async def open(self) -> None:
        """Read what waits. Raises ``JournalUnavailable``."""
        await self._kept.open()

    async def fire(self, device: str, tag: str, data: dict[str, Any], *, local: bool = False) -> None:
        """The event is on flash when this returns. Raises ``Refused`` and ``JournalUnavailable``."""
        await self._kept.add(tag, check(device, tag, sendable(data)), self._clock.wall(), local=local)

    async def send_all(self, station: Station) -> None:
        """Hand over what waits, page by page, for ever."""
        backoff = Backoff(AGAIN_FIRST_SECONDS, limits.RECONNECT_CEILING_SECONDS, floor=AGAIN_FIRST_SECONDS)
        most = PAGE_EVENTS
        while True:
            page = await self._kept.page(most)
            try:
                heard = decode_heard(await station.ask(KEEP, encode(page), patience=PATIENCE_SECONDS))
                if not page.events[0].sequence <= heard.through <= page.events[-1].sequence:
                    raise Refused("event_order", f"the station has {heard.through}")
            except Refused as refusal:
                if refusal.reason in UNSOUND and len(page.events) > 1:
                    most = 1
                    continue
                if refusal.reason in UNSOUND:
                    log.error("the station cannot read an event, it is lost tag=%s why=%s", page.events[0].tag, refusal)
                    await self._kept.lose(page.events[0].sequence)
                    continue
                log.info("events wait, they are offered again why=%s", refusal)
            except OutstationError as error:
                log.info("events wait, they are offered again why=%s", error.what)
            else:
                await self._taken(heard)
                backoff.reset()
                most = PAGE_EVENTS
                continue
            await asyncio.sleep(backoff.next())

    async def _taken(self, heard: Heard) -> None:
        for reason, count in heard.refused.items():
            log.warning("the station refused events of this device reason=%s count=%d", reason, count)
        await self._kept.taken(heard.through)
