"""The marks by which masters tell this store from a copy of it: a gateway's side of the fence (``upstream.twins``).

A fresh mark is on disk before the hello that says it, so that no copy taken later can say less and no copy taken
earlier can say it.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.protocol import tags
from gateway.bus import Bus
from gateway.store.reader import Reader
from gateway.store.writer import StoreFailed, Writer
from upstream.twin_frames import MARKS, STOPPED_SECONDS

log = logging.getLogger(__name__)

MARK_BYTES = 16
KEPT = 1024
"""Marks that a master has had: by an older one of them it is known that it was restored from a backup. A line that
breaks every few minutes uses up some hundreds in a day."""

TRIED = MARKS - 2
"""Marks that a master may have seen; with the one that was welcome, and one of a master from a backup."""

FENCES_KEY = "fences"
"""Key of the table ``station``: the reason of each master that fences this gateway, so that a restart knows it."""

_PUT = "INSERT OR REPLACE INTO station (key, value) VALUES (?, ?)"
_ADD = "INSERT INTO marks (master, mark) VALUES (?, ?)"
# Those before the newest too: a master may have let one in whose welcome was lost, and be put back to that moment.
_WELCOMED = "UPDATE marks SET welcomed = 1 WHERE master = ? AND welcomed = 0"
_FORGET = (
    "DELETE FROM marks WHERE master = ? AND number <="
    " (SELECT number FROM marks WHERE master = ? ORDER BY number DESC LIMIT 1 OFFSET ?)"
)


@dataclass
class _Known:
    """What this store has said to one master."""

    welcomed: list[bytes] = field(default_factory=list)
    tried: list[bytes] = field(default_factory=list)
    claimed: bytes = b""
    """An older mark that the master has: it was restored from a backup."""
    fenced: str = ""
    fence_kept: bool = False
    """The fence is on disk, and what depends on it has heard of it."""
    twin: str = ""
    seen: float = 0.0


class Marks(Part):
    """Implements ``upstream.ports.Marks``."""

    name: ClassVar[str] = "marks"
    drain_seconds: ClassVar[float] = 0.5

    def __init__(self, *, site: str, writer: Writer, reader: Reader, bus: Bus, clock: Clock) -> None:
        self._site = site
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self.heard = False
        """Whether a master has given its welcome since this program started."""
        self._on_fence: Callable[[], Awaitable[None]] = _no_listener

    def on_fence(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call when a master fences this gateway that did not before."""
        self._on_fence = call

    def fences(self) -> set[str]:
        """The keys of the masters that fence this gateway."""
        return {master for master, known in self._known.items() if known.fenced}

    async def open(self) -> None:
        """Load what was said to whom."""
        for (fences,) in await self._reader.rows("SELECT value FROM station WHERE key = ?", (FENCES_KEY,)):
            for master, reason in msgspec.json.decode(fences, type=dict[str, str]).items():
                self._known[master] = _Known(fenced=reason, fence_kept=True)
        for master, mark, welcomed in await self._reader.rows(
            "SELECT master, mark, welcomed FROM marks ORDER BY number"
        ):
            known = self._known.setdefault(master, _Known())
            (known.welcomed if welcomed else known.tried).append(mark)

    async def next(self, master: str) -> tuple[list[bytes], bool]:
        """A fresh mark, with those before it. Raises ``StoreFailed`` when there is none on disk."""
        known = self._known.setdefault(master, _Known())
        if len(known.tried) < TRIED:
            mark = secrets.token_bytes(MARK_BYTES)
            # On a full disk the marks before it must do: they were on disk in time.
            with contextlib.suppress(StoreFailed) if known.tried else contextlib.nullcontext():
                await self._writer.commit([(_ADD, [(master, mark)])])
                known.tried.append(mark)
        return [*filter(None, (known.claimed,)), *known.welcomed[-1:], *known.tried], not known.welcomed

    async def welcomed(self, master: str, name: str) -> None:
        """The newest mark is what this master knows this store by. Raises ``StoreFailed``."""
        known = self._known.setdefault(master, _Known())
        if known.claimed:
            log.warning("the master was restored from a backup, and goes on from there master=%s", name)
            await self._bus.fire(
                [self._bus.event(tags.master_rolled_back(name), {"master": name, "key": master, "site": self._site})]
            )
        if known.tried:
            await self._writer.commit([(_WELCOMED, [(master,)]), (_FORGET, [(master, master, KEPT)])])
            known.welcomed = [*known.welcomed, *known.tried][-KEPT:]
            known.tried = []
        fenced, known.claimed, known.fenced, known.fence_kept = known.fenced, b"", "", False
        self.heard = True
        if fenced:
            await self._keep_fences()

    async def fenced(self, master: str, mark: bytes, reason: str) -> None:
        """Another was welcome with this mark; or we were, and the master has forgotten since."""
        known = self._known.setdefault(master, _Known())
        if mark in known.welcomed and mark != known.claimed:
            known.claimed = mark
            return
        # First in memory: nothing starts from now on, whatever becomes of the store.
        known.fenced, known.seen = reason, self._clock.wall()
        if not known.fence_kept:
            log.error("fenced: %s", reason)
            await self._keep_fences()
            await self._on_fence()
            known.fence_kept = True
            await self._tell({"site": self._site, "fenced": True, "reason": reason})

    async def twin(self, master: str, address: str) -> None:
        """Another gateway came to this master with a copy of our store, and was fenced."""
        known = self._known.setdefault(master, _Known())
        if known.twin != address:
            log.error("another gateway runs with a copy of this store address=%s", address)
            await self._tell({"site": self._site, "fenced": False, "address": address})
        known.twin, known.seen = address, self._clock.wall()

    def views(self) -> list[dict[str, Any]]:
        """What masters say of another gateway with a copy of this store."""
        stopped = self._clock.wall() - STOPPED_SECONDS
        return [
            {"fenced": known.fenced, "twin": known.twin, "seen": known.seen}
            for known in self._known.values()
            if known.fenced or (known.twin and known.seen >= stopped)
        ]

    async def _keep_fences(self) -> None:
        reasons = {master: known.fenced for master, known in self._known.items() if known.fenced}
        await self._writer.commit([(_PUT, [(FENCES_KEY, msgspec.json.encode(reasons).decode())])])

    async def _tell(self, data: dict[str, object]) -> None:
        # Each master has an event of its own; this one is for whoever listens here.
        await self._bus.fire([self._bus.event(tags.site_twin(self._site), data)], upward=False)


async def _no_listener() -> None:
    """Until a listener is set."""
