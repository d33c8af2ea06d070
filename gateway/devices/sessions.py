"""The live sessions of this station's devices: whose frame is this, is it new, and do two devices share one identity.

A device that connects again opens another session, and its old connection never speaks again. When the old session does
speak long after the new one was opened, two machines hold one identity. Where the broker lets an identity in once they
throw each other out in turns, and each names the session that it opened itself last, which is not the last one here.
Then both sessions end, and nobody with that identity is heard until an operator has decided which is real.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.parts import Part
from device_agent.protocol import tags, topics
from device_agent.trust.session_frames import SID_BYTES, Session
from device_agent.trust.sessions import read_bye, session_before, sign_roll_call
from gateway.bus import Bus
from gateway.devices.allowance import Allowance
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

GRACE_SECONDS = 15.0
"""What an old connection had on its way may still arrive: a device hands a message over in ten seconds or drops it."""

WATCH_SECONDS = 180.0
"""How long an old session is kept to see whether it speaks: some beats of a device. Later its owner is called anew."""

REMEMBERED = 16
"""How many of a device's last openings are known by name, to see that another machine opened one in between."""

SWEEP_SECONDS = 30.0
ROLL_CALL_SECONDS = 10.0
ROLL_CALLS_PER_SECOND = 50.0
RETRY_SECONDS = 1.0

SID = slice(2, 2 + SID_BYTES)
"""Where a frame says which session it belongs to."""

Send = Callable[[Iterable[tuple[str, bytes]]], Awaitable[object]]
"""Hands over payloads with their topics, in order. Raises ``NotConnected``."""

ByDid = Callable[[str], Enrolled | None]
Quarantine = Callable[[str, str], Awaitable[object]]
"""Puts a did (as text) out until an operator decides; the second argument says why."""


@dataclass(slots=True, eq=False)
class Live:
    """One session of a device. ``up`` is the only topic its frames count on; times are monotonic seconds."""

    device: Enrolled
    session: Session
    nonce: bytes
    """The same for all sessions of one connection, and for its last will."""
    up: str
    down: str
    hello: str = ""
    """The name that the device gave its present connection in its last ``Hello``."""
    superseded: float | None = None
    """When another session of the same device was opened."""
    same_connection: bool = False
    """That other session was opened on the same connection."""
    epoch_told: float = float("-inf")


class Sessions(Part):
    """Live sessions by their sid, and the present one of each did."""

    name: ClassVar[str] = "sessions"

    def __init__(
        self,
        *,
        site: str,
        authority: Authority,
        by_did: ByDid,
        quarantine: Quarantine,
        bus: Bus,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._authority = authority
        self._by_did = by_did
        self._quarantine = quarantine
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._by_sid: dict[bytes, Live] = {}
        self._present: dict[str, Live] = {}
        self._older: dict[str, Live] = {}
        self._offered: dict[str, tuple[tuple[bytes, bytes], ...]] = {}
        self._cloned: dict[str, Live] = {}
        self._cloned_wake = asyncio.Event()
        self._on_drop: Callable[[str], None] = _nobody
        self._called: dict[str, float] = {}
        self._calls = Allowance(per_second=ROLL_CALLS_PER_SECOND, burst=ROLL_CALLS_PER_SECOND, clock=clock)

    async def open(self) -> None:
        """Start the sweep."""
        self.spawn(self._sweep(), "sweep")
        self.spawn(self._quarantine_cloned(), "cloned")

    def on_drop(self, call: Callable[[str], None]) -> None:
        """Call with a device's name when its session ended and the device had no say in it."""
        self._on_drop = call

    # --- what is live ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._present)

    def find(self, did: str) -> Live | None:
        """The present session of a device."""
        return self._present.get(did)

    def dids(self) -> list[str]:
        """Every device with a session."""
        return list(self._present)

    def label(self, did: str) -> str:
        """What to call whoever speaks under this did."""
        device = self._by_did(did)
        return device.label if device is not None else did

    def may_open(self, did: str) -> Enrolled:
        """The device that may have a session under this did. Raises ``Refused``."""
        device = self._by_did(did)
        if device is None:
            raise Refused("unknown_device", did)
        if did in self._cloned:
            raise Refused("quarantined", device.name)
        if device.state != "accepted":
            raise Refused(device.state, device.name)
        if self._authority.anchor.device_revoked(device.kid, self._site):
            raise Refused("revoked", device.name)
        return device

    def add(self, device: Enrolled, session: Session, nonce: bytes) -> Live:
        """A session that was opened. Raises ``Refused``: its name is taken, or another machine opened the last one."""
        if session.sid in self._by_sid:
            raise Refused("doubled_session", session.sid.hex())
        did = device.did
        up, down = topics.device_up(self._site, did, "f"), topics.device_job(self._site, did)
        live = Live(device, session, nonce, up, down)
        before = self._present.get(did)
        if self._forks(did, nonce):
            self._two_of_one(before or live)
            raise Refused("cloned", f"{device.name}: another machine opened the last session of this identity")
        self.offered(did, nonce, session.sid)
        if before is not None:
            before.superseded = self._clock.monotonic()
            before.same_connection = before.nonce == nonce
            self._let_go(self._older.pop(did, None))
            self._older[did] = before
        self._by_sid[session.sid] = self._present[did] = live
        return live

    def offered(self, did: str, nonce: bytes, sid: bytes) -> None:
        """A device offered this session on the connection with this nonce; also when it was not taken.

        Two machines that take turns offer more than is taken. Nothing is concluded from this before one of them proves
        itself: a nonce counts in what is signed.
        """
        self._offered[did] = (*self._offered.get(did, ()), (nonce, sid))[-REMEMBERED:]

    def end(self, live: Live) -> None:
        """The device said that it goes."""
        self._by_sid.pop(live.session.sid, None)
        for table in (self._present, self._older):
            if table.get(live.device.did) is live:
                del table[live.device.did]

    def drop(self, dids: Iterable[str]) -> None:
        """Hear these devices no more under the sessions they have."""
        for did in dids:
            present = self._present.pop(did, None)
            self._let_go(present)
            self._let_go(self._older.pop(did, None))
            if present is not None:
                self._on_drop(present.device.name)

    def _let_go(self, live: Live | None) -> None:
        if live is not None:
            self._by_sid.pop(live.session.sid, None)

    # --- what arrives ----------------------------------------------------------------------------------------------

    def of(self, frame: bytes) -> Live | None:
        """The session that a frame names; None when it is not known here."""
        return self._by_sid.get(frame[SID])

    def opened(self, live: Live, topic: str, frame: bytes) -> bytes:
        """What a device sealed into a frame. Raises ``Refused``."""
        if topic != live.up:
            raise Refused("wrong_topic", f"a session of {live.device.name}")
        plaintext = live.session.open(frame, topic, self._clock.monotonic())
        if live.superseded is not None:
            self._spoke_again(live, live.superseded)
        return plaintext

    def frames(self, dids: Iterable[str], plaintext: bytes) -> list[tuple[str, bytes]]:
        """A message to each of these devices that has a session, with its topic."""
        now = self._clock.monotonic()
        frames = []
        for did in dids:
            live = self._present.get(did)
            if live is None:
                continue
            try:
                frames.append((live.down, live.session.seal(plaintext, live.down, now)))
            except Refused:
                # A day old, or its counter is used up: the device opens another when it is called.
                self.end(live)
        return frames

    def bye(self, did: str, body: bytes) -> Live | None:
        """A last will arrived: the session that it ended, if that was the present one. Raises ``Refused``."""
        read = read_bye(body, site=self._site)
        if read.did != did:
            raise Refused("wrong_topic", f"a last will of {read.did}")
        present, older = self._present.get(did), self._older.get(did)
        ended = next((live for live in (present, older) if live is not None and live.nonce == read.nonce), None)
        if ended is None:
            # Of a connection before a restart, or of one that was known to be over.
            self._metrics.add("mqtt_late_wills")
            return None
        read.verified(ended.device.sig)
        self.end(ended)
        return ended if ended is present else None

    def roll_call(self, did: str, sid: bytes) -> bytes | None:
        """The word that a session is not known here; None when that was said too often already."""
        now = self._clock.monotonic()
        if now - self._called.get(did, float("-inf")) < ROLL_CALL_SECONDS:
            return None
        try:
            self.may_open(did)
        except Refused:
            return None
        if not self._calls.take():
            return None
        self._called[did] = now
        issued = int(self._authority.now())
        return sign_roll_call(self._authority.signing, device=did, site=self._site, sid=sid, issued=issued)

    # --- two of one identity ---------------------------------------------------------------------------------------

    def _spoke_again(self, live: Live, superseded: float) -> None:
        if self._clock.monotonic() - superseded < GRACE_SECONDS:
            return
        if live.same_connection:
            self.end(live)
            raise Refused("unknown_session", f"{live.device.name} has opened another")
        self._two_of_one(live)
        raise Refused("cloned", f"{live.device.name}: two live sessions of one identity")

    def _forks(self, did: str, nonce: bytes) -> bool:
        """Whether this connection comes after one of this device that was not the last one before it.

        A name that is not known says nothing: the device was started anew, or its last opening did not arrive.
        """
        offered = self._offered.get(did, ())
        first = next((place for place, (each, _) in enumerate(offered) if each == nonce), len(offered))
        if not first:
            return False
        latest, _ = offered[first - 1]
        return session_before(nonce) in {sid for each, sid in offered[:first] if each != latest}

    def _two_of_one(self, live: Live) -> None:
        did = live.device.did
        self._cloned[did] = live
        self._cloned_wake.set()
        self._offered.pop(did, None)
        self.drop([did])

    async def _quarantine_cloned(self) -> None:
        while True:
            await self._cloned_wake.wait()
            self._cloned_wake.clear()
            for did, live in list(self._cloned.items()):
                try:
                    await self._quarantine(did, "two live sessions of one identity: it may have been cloned")
                except OutstationError as error:
                    log.error("cloned device not put out, tried again device=%s error=%s", live.device.name, error)
                    self._cloned_wake.set()
                    continue
                del self._cloned[did]
                data = {"id": live.device.name, "did": did, "seconds": self._clock.monotonic() - live.session.opened}
                await self._bus.fire([self._bus.event(tags.device_cloned(live.device.name), data)])
            if self._cloned:
                await asyncio.sleep(RETRY_SECONDS)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep()

    def sweep(self) -> None:
        """Forget what is over: old sessions that stayed silent, sessions a day old, calls nobody counts any more."""
        now = self._clock.monotonic()
        for live in list(self._older.values()):
            if live.superseded is not None and now - live.superseded > WATCH_SECONDS:
                self.end(live)
        for did, live in list(self._present.items()):
            device = self._by_did(did)
            if live.session.over(now) or device is None or device.state != "accepted":
                self.end(live)
        self._called = {did: at for did, at in self._called.items() if now - at < ROLL_CALL_SECONDS}
        gone = [did for did in self._offered if (device := self._by_did(did)) is None or device.state != "accepted"]
        for did in gone:
            del self._offered[did]


async def nowhere(_: Iterable[tuple[str, bytes]]) -> None:
    """Where everything goes until there is a link."""


def _nobody(_: str) -> None:
    """Until somebody asks to be told."""
