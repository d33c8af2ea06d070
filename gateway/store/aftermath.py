"""What is still to be said and done of a store that was damaged or went back: told once, and removed when it is old."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.protocol import tags
from gateway.bus import Bus
from gateway.store.damage import ROW, Damage, decode, encode
from gateway.store.opening import belongings, set_aside
from gateway.store.reader import Reader
from gateway.store.trust_state import ROW as TRUST_ROW
from gateway.store.trust_state import SOUND, StoreTrust, acknowledged, joined, keeping, load_trust
from gateway.store.writer import StoreFailed, Writer

log = logging.getLogger(__name__)

KEEP_SECONDS: Final = 14 * 86_400.0
LOOK_SECONDS: Final = 3600.0


class Aftermath(Part):
    """Tells masters of a salvage, and keeps the damaged file for a time."""

    name: ClassVar[str] = "aftermath"
    drain_seconds: ClassVar[float] = 0.5

    def __init__(self, *, station: str, path: Path, writer: Writer, reader: Reader, bus: Bus, clock: Clock) -> None:
        self._station = station
        self._path = path
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._on_loss: list[Callable[[], Awaitable[None]]] = []
        self._clock = clock
        self.damage: Damage | None = None
        self.trust: StoreTrust = SOUND
        """Whether the store has all that it acknowledged."""

    async def open(self) -> None:
        """Read what happened, and tell it if nobody was told."""
        self.trust = await load_trust(self._reader)
        rows = await self._reader.rows("SELECT value FROM station WHERE key = ?", (ROW,))
        self.damage = decode(rows[0][0]) if rows else None
        if self.damage is not None and not self.damage.told:
            await self._tell(self.damage)
        if not self.trust.told:
            await self._tell_trust(self.trust)
        self.spawn(self._tidy(), "tidy")

    @property
    def witness_failing(self) -> str:
        """Why the witness of the store cannot be written; empty when it can."""
        return self._writer.witness.file.failing

    def view(self) -> dict[str, Any] | None:
        """What happened, as checks look at it; None when nothing did, or when it is long ago."""
        return None if self.damage is None else {**msgspec.to_builtins(self.damage), "words": self.damage.words()}

    async def went_back(self, why: str) -> None:
        """A master shows that the store lost commits which the witness does not know of. Raises ``StoreFailed``."""
        now = self._clock.wall()
        reason = f"{why}, so commits are gone; what else the store lacks is not known"
        trust = joined(self.trust, StoreTrust(state="went_back", at=now, reason=reason))
        await self._writer.commit([keeping(trust)])
        self.trust = trust
        log.critical("the store is not what it was: %s", trust.words())
        await self._tell_trust(trust)
        for call in self._on_loss:
            await call()

    def on_loss(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call when a master shows, while the station runs, that the store lost commits."""
        self._on_loss.append(call)

    async def acknowledge(self, user: str) -> StoreTrust:
        """An operator knows of the loss: the store is not in doubt any more. Raises ``StoreFailed``."""
        if self.trust.in_doubt:
            trust = acknowledged(self.trust, user)
            await self._writer.commit([keeping(trust)])
            self.trust = trust
        return self.trust

    async def _tell_trust(self, trust: StoreTrust) -> None:
        if trust.state == "went_back" or trust.missing:
            event = self._bus.event(
                tags.station_damaged(self._station),
                {
                    "reason": trust.reason,
                    "words": trust.words(),
                    "missing": trust.missing,
                    "numbers": {stream: list(span) for stream, span in trust.numbers.items()},
                    "since": trust.since,
                    "until": trust.until,
                    "jobs": list(trust.jobs),
                    "log_lost": True,
                    "epoch_renewed": True,
                },
            )
            await self._bus.fire([event])
        told = msgspec.structs.replace(trust, told=True)
        try:
            await self._writer.commit([keeping(told)])
            self.trust = told
        except StoreFailed as error:
            log.error("the event of the loss goes out again at the next start error=%s", error.found)

    async def _tell(self, damage: Damage) -> None:
        told = msgspec.structs.replace(damage, told=True)
        event = self._bus.event(
            tags.station_damaged(self._station),
            {
                "reason": damage.reason,
                "words": damage.words(),
                "rows": {name: found.rows for name, found in damage.tables.items()},
                "incomplete": damage.incomplete,
                "missing": damage.missing,
                "log_lost": damage.log_lost,
                "epoch_renewed": damage.epoch_renewed,
            },
        )
        # What a restart would tell again has no row of its own to be committed with: twice is better than never.
        await self._bus.fire([event])
        try:
            await self._writer.commit([("UPDATE station SET value = ? WHERE key = ?", [(encode(told), ROW)])])
            self.damage = told
        except StoreFailed as error:
            log.error("the event of the damage goes out again at the next start error=%s", error.found)

    async def _tidy(self) -> None:
        while True:
            try:
                await self._clear()
            except (StoreFailed, OSError) as error:
                log.error("a damaged store that was set aside is not removed error=%s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _clear(self) -> None:
        if self.trust.acknowledged and self._clock.wall() - self.trust.at >= KEEP_SECONDS:
            await self._writer.commit([("DELETE FROM station WHERE key = ?", [(TRUST_ROW,)])])
            self.trust = SOUND
        damage = self.damage
        if damage is None or self._clock.wall() - damage.at < KEEP_SECONDS:
            return
        for aside in set_aside(self._path):
            for file in belongings(aside):
                file.unlink(missing_ok=True)
            log.info("removed a damaged store file=%s", aside)
        await self._writer.commit([("DELETE FROM station WHERE key = ?", [(ROW,)])])
        self.damage = None
