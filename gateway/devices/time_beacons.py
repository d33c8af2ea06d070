"""Time beacons at a station: a master signs one each hour, a gateway and a relay keep the newest and pass it on.

They are no jobs: nothing of them stands in the job history, the events, the audit or the spool, and none waits for a
site that is dark. Such a site gets the newest one with its next welcome.

A beacon keeps the time of this station from being set back. One that is ahead of a clock that may be right moves
nothing: a master whose clock jumps ahead must not end every certificate at once. A station whose clock is behind what
was signed before has no clock to compare with, and goes by the beacon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, Final

from device_agent.clock import Clock, iso
from device_agent.errors import OutstationError, Refused
from device_agent.parts import Part
from device_agent.trust.floor import MOVED_SECONDS
from device_agent.trust.time_beacon import EVERY_SECONDS, TimeBeacon, open_time_beacon, sign_time_beacon
from gateway.devices.authority import Authority
from gateway.fleet.private_file import read_private, write_private

log = logging.getLogger(__name__)

FILE: Final = "time-beacon"
FILE_BYTES: Final = 4096
FOR_DEVICES_SECONDS: Final = MOVED_SECONDS - 60
"""How far ahead of this station's time a beacon may be that devices get: they have their time from this station, and
refuse one that is ``MOVED_SECONDS`` ahead of it."""

JUMP_SECONDS: Final = 60.0

Call = Callable[[], Awaitable[None]]


class TimeBeacons(Part):
    """The newest time beacon of each master that counts."""

    name: ClassVar[str] = "time-beacons"

    def __init__(self, folder: Path, *, authority: Authority, clock: Clock) -> None:
        self._path = folder / FILE
        self._authority = authority
        self._clock = clock
        self._held: dict[bytes, TimeBeacon] = {}
        self._passed: TimeBeacon | None = None
        self._calls: list[Call] = []
        self._jump_calls: list[Call] = []
        self.heard: dict[str, float] = {}
        """When a link (by its address) last brought a beacon that was new, in wall seconds."""

    async def open(self) -> None:
        """Go by the beacon that was kept; on a master, sign one now and each hour."""
        self._load()
        self._authority.on_change(self._look)
        if self._authority.role == "master":
            self.spawn(self._run(), "sign")

    def on_change(self, call: Call) -> None:
        """Call when there is a newer beacon."""
        self._calls.append(call)

    def on_jump(self, call: Call) -> None:
        """Call when a beacon moved the time of this station."""
        self._jump_calls.append(call)

    def bodies(self) -> list[bytes]:
        """The newest of each master, for the sites below."""
        return [beacon.body for beacon in self._held.values()]

    def for_devices(self) -> TimeBeacon | None:
        """The newest that is not ahead of this station's time; None without one."""
        latest = self._authority.now() + FOR_DEVICES_SECONDS
        return max((each for each in self._held.values() if each.issued <= latest), key=_issued, default=None)

    async def take(self, body: bytes, link: str) -> None:
        """A beacon came over a link, whose address this is. Raises ``Refused``.

        An older one than is held of that master is no news, unless the one held is ahead of this station's time: then
        the master's clock was wrong and has been set.
        """
        beacon = open_time_beacon(body, self._authority.anchor.master_key)
        known = self._held.get(beacon.kid)
        if known is not None and beacon.issued <= known.issued and (beacon == known or not self._is_ahead(known)):
            return
        self.heard[link] = self._clock.wall()
        ahead = self._is_ahead(beacon)
        await self._hold(beacon)
        if ahead and self._authority.clock_counts:
            raise Refused("issued_in_future", f"a time beacon of {iso(beacon.issued)}; compare the clocks")

    async def sign(self) -> None:
        """Sign the time now; nothing on a station that is no master of the newest root list."""
        if self._authority.master is not None:
            key = self._authority.signing
            issued = int(self._authority.now())
            self._held[key.kid] = TimeBeacon(issued, key.kid, sign_time_beacon(key, issued))
            await _all(self._calls)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _is_ahead(self, beacon: TimeBeacon) -> bool:
        return beacon.issued > self._authority.now() + MOVED_SECONDS

    async def _hold(self, beacon: TimeBeacon) -> None:
        self._held[beacon.kid] = beacon
        authority = self._authority
        before, counted = authority.now(), authority.clock_counts
        if not counted or not self._is_ahead(beacon):
            # Two clocks that agree are a little apart all the same: nothing is said to have passed that is to come.
            await self._pass(beacon, min(beacon.issued, int(before)) if counted else beacon.issued)
        if not counted and authority.now() > before + JUMP_SECONDS:
            log.warning("a time beacon moved the time of this station seconds=%+.0f", authority.now() - before)
            await _all(self._jump_calls)
        await _all(self._calls)

    async def _pass(self, beacon: TimeBeacon, seconds: int) -> None:
        if self._passed is not None and beacon.issued <= self._passed.issued:
            return
        self._passed = beacon
        self._authority.has_passed(seconds)
        try:
            await asyncio.to_thread(write_private, self._path, beacon.body)
        except (OSError, OutstationError) as error:
            log.error("the time beacon is not on disk, the next one is tried in an hour error=%s", error)

    def _load(self) -> None:
        body = read_private(self._path, FILE_BYTES)
        if body is None:
            return
        try:
            beacon = open_time_beacon(body, self._authority.anchor.master_key)
        except Refused as refusal:
            # Its master was dropped, or the disk damaged it: the next one takes its place.
            log.info("the time beacon that was kept does not count reason=%s", refusal)
            return
        self._held[beacon.kid] = self._passed = beacon
        self._authority.has_passed(beacon.issued)

    async def _look(self) -> None:
        """What this station believes has changed: the beacon of a master that was dropped counts no more."""
        counting = {master.kid for master in self._authority.anchor.masters}
        self._held = {kid: beacon for kid, beacon in self._held.items() if kid in counting}
        if self._passed is not None and self._passed.kid not in counting:
            self._passed = None
            self._authority.has_passed(0)
            newest = self.for_devices()
            if newest is not None:
                await self._pass(newest, newest.issued)
        own = self._authority.master
        if own is not None and own.kid not in self._held:
            await self.sign()

    async def _run(self) -> None:
        while True:
            await self.sign()
            await asyncio.sleep(EVERY_SECONDS)


def _issued(beacon: TimeBeacon) -> int:
    return beacon.issued


async def _all(calls: list[Call]) -> None:
    for call in calls:
        await call()
