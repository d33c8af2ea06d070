"""Who is out: this site's own list of revoked devices, and what follows from it and from the lists of masters.

A revoked device loses its session, its place at the broker and, with the next group key, what is said to everybody. The
own list only grows, in versions; devices and masters take it from the site's retained message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from device_agent.errors import OutstationError, Refused
from device_agent.parts import Part
from device_agent.trust.keys import KID_BYTES, did_from_text
from device_agent.trust.revocations import read_revocations, sign_revocations
from gateway.devices.authority import Authority
from gateway.devices.enrolled import BELONGING, Enrolled
from gateway.devices.epochs import Epochs
from gateway.devices.sessions import Sessions
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
VERSION_MAX = 2**62
"""A device that claims to know a higher version lies; the wire has room for twice as many."""

_ADD = "INSERT OR IGNORE INTO revoked_devices (kid, version, revoked) VALUES (?, ?, ?)"

RemoveUsers = Callable[[Sequence[str]], Awaitable[object]]
"""Takes devices (dids as text) out of the broker's users, and cuts their connections."""

RevokedAbove = Callable[[Sequence[str]], Awaitable[object]]
"""Writes down that devices (dids as text) are revoked by a list from above."""


@dataclass(frozen=True, slots=True)
class _Entry:
    version: int
    revoked: float


class Revocation(Part):
    """This site's own list, and the one place where a revocation is carried out."""

    name: ClassVar[str] = "revocation"

    def __init__(
        self,
        *,
        site: str,
        authority: Authority,
        sessions: Sessions,
        epochs: Epochs,
        devices: Callable[[], Iterable[Enrolled]],
        remove_users: RemoveUsers,
        revoked_above: RevokedAbove,
        writer: Writer,
        reader: Reader,
        metrics: Metrics,
    ) -> None:
        self._site = site
        self._authority = authority
        self._sessions = sessions
        self._epochs = epochs
        self._devices = devices
        self._remove_users = remove_users
        self._revoked_above = revoked_above
        self._writer = writer
        self._reader = reader
        self._metrics = metrics
        self._listed: dict[bytes, _Entry] = {}
        self._highest = 0
        self._revoked_here: set[bytes] = set()
        self._users_left: set[str] = set()
        self._revoking = asyncio.Lock()
        self._look_wake = asyncio.Event()

    async def open(self) -> None:
        """Load the own list, and carry out what a stop left undone."""
        for kid, version, revoked in await self._reader.rows("SELECT kid, version, revoked FROM revoked_devices"):
            self._listed[kid] = _Entry(version, revoked)
        self._look_wake.set()
        self._authority.on_change(self._look_again)
        self.spawn(self._run(), "look")

    async def _look_again(self) -> None:
        self._look_wake.set()

    @property
    def version(self) -> int:
        """The version of the own list; 0 while nobody is on it."""
        return max((entry.version for entry in self._listed.values()), default=0)

    def raise_version(self, version: int) -> None:
        """A device knows this version of the own list: the next one goes above it, whatever store was restored."""
        if version < VERSION_MAX:
            self._highest = max(self._highest, version)

    async def revoke(self, dids: Sequence[str], beside: Sequence[Statement] = ()) -> None:
        """Put devices out for good: on disk, together with ``beside``, before it counts; and carried out at once.

        Raises ``StoreFailed``: then nothing has happened. What fails after that is logged and tried again.
        """
        async with self._revoking:
            now = self._authority.now()
            kids = {did_from_text(did)[:KID_BYTES] for did in dids} - self._listed.keys()
            version = max(self.version, self._highest, self._authority.anchor.site_version(self._authority.signing.kid))
            fresh = {kid: _Entry(version + 1, now) for kid in kids}
            await self._writer.commit([(_ADD, [(k, e.version, e.revoked) for k, e in fresh.items()]), *beside])
            self._listed.update(fresh)
            self._revoked_here |= fresh.keys()
            self._users_left.update(dids)
            log.warning("devices revoked devices=%s version=%d", ", ".join(dids), self.version)
            try:
                await self._publish()
                self._sessions.drop(dids)
                await self._epochs.rotate(revocation=True)
                await self._remove_left()
            except OutstationError as error:
                log.error("revocation not carried out, tried again devices=%s error=%s", ", ".join(dids), error)
                self._look_wake.set()

    def body(self) -> bytes | None:
        """The own list, signed; the same bytes for the same list. None while nobody is on it."""
        if not self._listed:
            return None
        return sign_revocations(
            self._authority.signing,
            version=self.version,
            kids=self._listed,
            issued=int(max(entry.revoked for entry in self._listed.values())),
            site=self._site,
        )

    async def _publish(self) -> None:
        """Let the own list count here too; from here it goes to devices and masters."""
        body = self.body()
        own = self._authority.signing.kid
        if (
            body is not None
            and self._authority.may("revoke")
            and self._authority.anchor.site_version(own) < self.version
        ):
            await self._authority.install(revocations=[body])

    async def _run(self) -> None:
        while True:
            await self._look_wake.wait()
            self._look_wake.clear()
            try:
                async with self._revoking:
                    await self.look()
            except OutstationError as error:
                log.error("revocations not carried out, tried again error=%s", error)
                self._look_wake.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def look(self) -> None:
        """Carry out what the lists that count now say, where that has not been done."""
        await self._take_over()
        anchor = self._authority.anchor
        above = [
            device.did
            for device in self._devices()
            if device.state in BELONGING
            and anchor.device_revoked(device.kid, self._site)
            and device.kid not in self._revoked_here
        ]
        self._sessions.drop(above)
        newest = max((entry.revoked for entry in self._listed.values()), default=0.0)
        if above or newest > self._epochs.made:
            await self._epochs.rotate(revocation=True)
        self._users_left.update(above)
        await self._remove_left()
        if above:
            # Last: what a crash cuts short is found again as long as they still belong here.
            await self._revoked_above(above)

    async def _remove_left(self) -> None:
        if self._users_left:
            await self._remove_users(sorted(self._users_left))
            self._users_left.clear()

    async def _take_over(self) -> None:
        """Make the own list and what counts of it one: either may be from a backup."""
        own = self._authority.signing.kid
        for body in self._authority.anchor.revocation_lists():
            read = read_revocations(body)
            if read.kid == own and read.version > self.version:
                missing = {kid: _Entry(read.version, float(read.issued)) for kid in read.kids - self._listed.keys()}
                await self._writer.commit([(_ADD, [(k, e.version, e.revoked) for k, e in missing.items()])])
                self._listed.update(missing)
                self.raise_version(read.version)
        try:
            await self._publish()
        except Refused as refusal:
            # An own list that does not count is no reason to stop: its devices are refused by their state as well.
            self._metrics.refused("mqtt", refusal.reason, "own revocation list", refusal.detail)
