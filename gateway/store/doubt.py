"""Whether another gateway may have done the work that this store still holds.

Three things put a store in doubt. A master fences this gateway: a copy of the store is connected, or was connected
since. The store went back, was damaged, or was restored (``trust_state``). Then work of
before that moment ends as unknown and does not start. While the gateway is fenced, it starts nothing at all.

An ordinary restart puts nothing in doubt, with or without a master.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Final, Protocol

import msgspec
from msgspec import Struct

from device_agent.clock import Clock
from device_agent.errors import PolicyRefused
from device_agent.parts import Part
from device_agent.protocol.jid import JidMaker
from gateway.store.reader import Reader
from gateway.store.told import Marks
from gateway.store.trust_state import load_trust
from gateway.store.writer import StoreFailed, Writer

log = logging.getLogger(__name__)

HORIZON_KEY: Final = "start_horizon"
SETTLED_KEY: Final = "doubt_settled"
"""Keys of the table ``station``."""

FENCED_ID: Final = "station.fenced"
"""The error of a caller that orders something while the gateway is fenced."""

_PUT = "INSERT OR REPLACE INTO station (key, value) VALUES (?, ?)"


class Doubt(Protocol):
    """What the parts of a station ask before they start work (``StoreDoubt``)."""

    @property
    def heard(self) -> bool:
        """Whether a master has welcomed this gateway since it started."""

    def past(self) -> str:
        """Why work that the store holds at this start may have been done already. Empty when it may go on."""

    def stopped(self) -> str:
        """Why nothing may start now. Empty when work may start."""

    def of_job(self, jid: str) -> str:
        """Why a job may have run at another gateway. Empty when it may start here."""

    def check(self) -> None:
        """Raise ``PolicyRefused`` while nothing may start."""


class Master(Protocol):
    """A master above (``upstream.uplink.MasterAddress``)."""

    @property
    def key(self) -> str:
        """Its CURVE key."""


class Horizon(Struct, frozen=True):
    """Jobs up to this jid may have run at another gateway, and why."""

    jid: str = ""
    why: str = ""


class StoreDoubt(Part):
    """Answers whether work may start. Everything that starts work from the store asks here first."""

    name: ClassVar[str] = "doubt"

    def __init__(
        self, *, writer: Writer, reader: Reader, marks: Marks, masters: Callable[[], Sequence[Master]], clock: Clock
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._marks = marks
        self._masters = masters
        self._clock = clock
        self._past = ""
        self._settling = ""
        self._horizon = Horizon()
        self._on_doubt: list[Callable[[str], Awaitable[None]]] = []
        marks.on_fence(self._fenced)

    async def open(self) -> None:
        """Read what is known of the store's past. The marks are open already."""
        rows = dict(
            await self._reader.rows("SELECT key, value FROM station WHERE key IN (?, ?)", (SETTLED_KEY, HORIZON_KEY))
        )
        if HORIZON_KEY in rows:
            self._horizon = msgspec.json.decode(rows[HORIZON_KEY], type=Horizon)
        trust = await load_trust(self._reader)
        if trust.state != "sound" and rows.get(SETTLED_KEY) != f"{trust.at}":
            self._settling = f"{trust.at}"
            self._past = (
                f"unknown: it may have run before. The store of this gateway is {_STATES.get(trust.state, trust.state)}"
                f" ({trust.reason or 'no reason given'}); order it again if it is still wanted"
            )
        if why := self.past():
            await self._raise_horizon(why)

    async def settled(self) -> None:
        """Everything that the store held has ended: from now on only a fence is in the way."""
        if self._settling:
            await self._keep(SETTLED_KEY, self._settling)
        self._past = self._settling = ""

    def on_doubt(self, call: Callable[[str], Awaitable[None]]) -> None:
        """Call with the reason when a master fences this gateway, or shows that its store went back."""
        self._on_doubt.append(call)

    async def went_back(self) -> None:
        """A master shows that the store lost commits: jobs of before now end as unknown, and new ones start."""
        await self._came_up(
            "unknown: it may have run before. The store of this gateway is older than what it acknowledged (a master"
            " knows more of it); order it again if it is still wanted"
        )

    def past(self) -> str:
        """Why work that the store holds at this start may have been done already. Empty when it may go on."""
        return self._past or self.stopped()

    def stopped(self) -> str:
        """Why nothing may start now. Empty when work may start."""
        fences = self._marks.fences()
        if not fences or fences.isdisjoint(master.key for master in self._masters()):
            return ""
        return (
            "unknown: it may have run before. This gateway is fenced: a gateway with a copy of its store is or was"
            " connected to the master; look with outstation check, and order it again if it is still wanted"
        )

    def of_job(self, jid: str) -> str:
        """Why a job may have run at another gateway. Empty when it may start here."""
        return self.stopped() or (self._horizon.why if jid <= self._horizon.jid else "")

    @property
    def heard(self) -> bool:
        """Whether a master has welcomed this gateway since it started."""
        return self._marks.heard

    def check(self) -> None:
        """Raise ``PolicyRefused`` while nothing may start."""
        if self.stopped():
            raise PolicyRefused(
                "this gateway is fenced and starts nothing",
                error_id=FENCED_ID,
                found="a gateway with a copy of its store is or was connected to the master",
                allowed="orders at the gateway that the master lets in, or at the master",
                hint="stop the wrong one; if this one is right, on the master: outstation sites unfence SITE",
            )

    async def _fenced(self) -> None:
        why = self.stopped()
        if why:
            await self._came_up(why)

    async def _came_up(self, why: str) -> None:
        await self._raise_horizon(why)
        for call in self._on_doubt:
            await call(why)

    async def _raise_horizon(self, why: str) -> None:
        self._horizon = Horizon(max(self._horizon.jid, JidMaker().next(self._clock.wall())), why)
        await self._keep(HORIZON_KEY, msgspec.json.encode(self._horizon).decode())
        log.warning("jobs of before now start no more over SSH or on this station until=%s", self._horizon.jid)

    async def _keep(self, key: str, value: str) -> None:
        try:
            await self._writer.commit([(_PUT, [(key, value)])])
        except StoreFailed as error:
            # It holds in memory until the next start, which finds the same doubt.
            log.error("what is in doubt is not on disk key=%s error=%s", key, error.found)


_STATES: Final = {
    "went_back": "older than what it acknowledged",
    "damaged": "damaged, and rows are missing",
    "restored": "restored from a backup",
}
