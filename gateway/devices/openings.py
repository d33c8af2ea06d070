"""Openings of sessions are judged: by whom, with which prekey, and never one twice.

An opening costs a hundred times what a frame does. So one waits for each device, the newest; they are taken in small
turns between everything else, at a bounded rate; and what was taken is on disk before any of them is answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.mqtt import NotConnected
from device_agent.parts import Part
from device_agent.protocol import topics
from device_agent.trust.replay import raised_by_mark
from device_agent.trust.session_frames import SID_BYTES, Session
from device_agent.trust.sessions import SessionOk, UnverifiedOpening, read_session, sign_session_ok
from gateway.devices.allowance import Allowance
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from gateway.devices.epochs import Epochs
from gateway.devices.prekeys import Prekeys
from gateway.devices.revocation import Revocation
from gateway.devices.sessions import Send, Sessions, nowhere
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Writer

log = logging.getLogger(__name__)

OPENING_BYTES = 2048
BATCH = 64
TURN = 8
"""Openings judged before everything else gets its turn."""

PER_SECOND = 1500.0
DEVICE_BURST = 6.0
DEVICE_SECONDS = 10.0
"""A device may open a few sessions at once, and one in so many seconds after that."""

LOOKS_PER_SECOND = 200.0
"""Openings that are not taken and whose names are remembered all the same."""

RETRY_SECONDS = 1.0

ABOVE_SECONDS = 3600.0
"""What devices say of a newer group key than ours is believed once in so long: one of them may be in wrong hands."""


@dataclass(frozen=True, slots=True)
class _Judged:
    device: Enrolled
    read: UnverifiedOpening
    session: Session


class Openings(Part):
    """Takes ``os-ses``, answers ``os-sok``."""

    name: ClassVar[str] = "openings"

    def __init__(
        self,
        *,
        site: str,
        authority: Authority,
        prekeys: Prekeys,
        sessions: Sessions,
        epochs: Epochs,
        revocation: Revocation,
        raise_sequence: Callable[[int], None],
        writer: Writer,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._authority = authority
        self._prekeys = prekeys
        self._sessions = sessions
        self._epochs = epochs
        self._revocation = revocation
        self._raise_sequence = raise_sequence
        self._writer = writer
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._waiting: dict[str, bytes] = {}
        self._sids: set[bytes] = set()
        self._judging: set[str] = set()
        self._allowances: dict[str, Allowance] = {}
        self._above = Allowance(per_second=1.0 / ABOVE_SECONDS, burst=1.0, clock=clock)
        self._looks = Allowance(per_second=LOOKS_PER_SECOND, burst=LOOKS_PER_SECOND, clock=clock)
        self._wake = asyncio.Event()
        self._send: Send = nowhere

    async def open(self) -> None:
        """Start judging."""
        self.spawn(self._run(), "judge")

    def send_with(self, send: Send) -> None:
        """Answer through this."""
        self._send = send

    def offer(self, did: str, body: bytes) -> None:
        """An opening arrived on a device's topic. Raises ``Refused`` at once for what costs nothing to see."""
        device = self._sessions.may_open(did)
        if len(body) > OPENING_BYTES:
            raise Refused("oversized", f"{len(body)} bytes, at most {OPENING_BYTES}")
        if not self._allow(did):
            if did not in self._waiting:
                self._not_taken(did, body)
            raise Refused("too_many_sessions", device.name)
        if did in self._waiting:
            self._not_taken(did, self._waiting[did])
            self._metrics.add("openings_superseded")
        self._waiting[did] = body
        self._sids.add(hashlib.sha256(body).digest()[:SID_BYTES])
        self._wake.set()

    def _not_taken(self, did: str, body: bytes) -> None:
        """An opening that nobody looks at is remembered by its name, as long as there are not too many of them."""
        # One that came before it and is not judged yet would come to stand behind it.
        if did in self._judging or not self._looks.take():
            return
        try:
            read = read_session(body, site=self._site)
        except Refused:
            return
        if read.did == did:
            self._sessions.offered(did, read.nonce, read.digest[:SID_BYTES])

    def is_opening(self, sid: bytes) -> bool:
        """Whether the opening of this session waits here: its frames came too early, which is no reason to call."""
        return sid in self._sids

    def _allow(self, did: str) -> bool:
        allowance = self._allowances.get(did)
        if allowance is None:
            allowance = Allowance(per_second=1.0 / DEVICE_SECONDS, burst=DEVICE_BURST, clock=self._clock)
            self._allowances[did] = allowance
        return allowance.take()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            began = self._clock.monotonic()
            batch = [(did, self._waiting.pop(did)) for did in list(self._waiting)[:BATCH]]
            if not self._waiting:
                self._wake.clear()
            self._judging = {did for did, _ in batch}
            try:
                await self._take(batch)
            except OutstationError as error:
                # Nobody was answered: who still wants a session opens another.
                log.error("openings not taken devices=%d error=%s", len(batch), error)
                self._metrics.add("openings_not_taken", len(batch))
                await asyncio.sleep(RETRY_SECONDS)
            self._judging.clear()
            if not self._waiting:
                self._sids.clear()
            await asyncio.sleep(max(0.0, began + len(batch) / PER_SECOND - self._clock.monotonic()))

    async def _take(self, batch: list[tuple[str, bytes]]) -> None:
        judged = []
        for place, (did, body) in enumerate(batch, start=1):
            try:
                judged.append(self._judge(did, body))
            except Refused as refusal:
                self._refused(did, refusal)
                if refusal.reason == "unknown_prekey":
                    await self._prekeys.tell_again()
            if place % TURN == 0:
                await asyncio.sleep(0)
        judged = await self._first_seen(judged)
        await self._writer.commit(
            [("INSERT INTO openings (prekey, digest) VALUES (?, ?)", [(e.read.prekey, e.read.digest) for e in judged])]
        )
        known = max((entry.read.epoch for entry in judged), default=0)
        if known > self._epochs.epoch and self._above.take():
            # Our store is an older one: a device takes no key of a number that it has passed.
            await self._epochs.go_above(known)
        answers, behind = [], []
        for place, entry in enumerate(judged, start=1):
            try:
                answers.append(self._opened(entry))
                if entry.read.epoch != self._epochs.epoch:
                    behind.append(entry.device.did)
            except Refused as refusal:
                self._refused(entry.device.did, refusal)
            if place % TURN == 0:
                await asyncio.sleep(0)
        try:
            await self._send(answers)
        except NotConnected:
            self._metrics.add("mqtt_not_sent", len(answers))
        self._epochs.owe(behind)

    def _judge(self, did: str, body: bytes) -> _Judged:
        read = read_session(body, site=self._site)
        if read.did != did:
            raise Refused("wrong_topic", f"an opening of {read.did}")
        device = self._sessions.may_open(did)
        prekey = self._prekeys.find(read.prekey)
        if prekey is None:
            raise Refused("unknown_prekey", read.prekey.hex())
        return _Judged(device, read, read.opened(device.sig, prekey, self._clock.monotonic()))

    async def _first_seen(self, judged: list[_Judged]) -> list[_Judged]:
        """Those that were never taken before. One device has one in a batch, so they differ among themselves."""
        if not judged:
            return []
        prekeys = {entry.read.prekey for entry in judged}
        rows = await self._reader.rows(
            f"SELECT digest FROM openings WHERE prekey IN ({_places(len(prekeys))})"  # noqa: S608 - only places in it
            f" AND digest IN ({_places(len(judged))})",
            [*prekeys, *(entry.read.digest for entry in judged)],
        )
        known = {digest for (digest,) in rows}
        for entry in judged:
            if entry.read.digest in known:
                self._refused(entry.device.did, Refused("replayed", "an opening that was taken before"))
        return [entry for entry in judged if entry.read.digest not in known]

    def _opened(self, entry: _Judged) -> tuple[str, bytes]:
        device, read = entry.device, entry.read
        # Asked again: the disk took its time, and the device may have been put out meanwhile.
        self._sessions.may_open(device.did)
        live = self._sessions.add(device, entry.session, read.nonce)
        self._metrics.add("sessions_opened")
        now = self._authority.now()
        for kid, mark in read.marks:
            if kid == self._authority.signing.kid:
                self._raise_sequence(raised_by_mark(0, mark, now))
        self._revocation.raise_version(read.version)
        if read.epoch != self._epochs.epoch:
            live.epoch_told = self._clock.monotonic()
        word = SessionOk(
            issued=int(now), epoch=self._epochs.epoch, version=self._revocation.version, index=device.place
        )
        body = sign_session_ok(self._authority.signing, device=device.did, site=self._site, nonce=read.nonce, word=word)
        return topics.device_sok(self._site, device.did), body

    def _refused(self, did: str, refusal: Refused) -> None:
        self._metrics.refused("mqtt", refusal.reason, self._sessions.label(did), refusal.detail)


def _places(count: int) -> str:
    return ", ".join("?" * count)
