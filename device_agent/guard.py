"""The guard of one device: opens what comes on each of its topics, seals what it says, keeps its session open.

It owns no task and no socket. What it says by itself (openings of sessions, the wish for a group key) goes out through
``publish`` as everything else does. Times are monotonic seconds.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from device_agent.backoff import Backoff
from device_agent.beliefs import Beliefs
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.errors import Refused
from device_agent.heard import Cancelled, Heard, Renamed, SessionLost, SessionOpened
from device_agent.identity import Identity
from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.messages import (
    Certificate,
    Confirm,
    EpochWanted,
    Welcome,
    decode_downward,
    encode,
)
from device_agent.protocol.questions import Answer
from device_agent.signed_delivery import SignedDelivery, check_call, vouched
from device_agent.trust import cose
from device_agent.trust.deliveries import CancelDelivery, read_delivery
from device_agent.trust.notices import open_ack_for, open_cancel
from device_agent.trust.reach import Custom, no_custom
from device_agent.trust.session_frames import SESSION_SECONDS, SID_BYTES, Session
from device_agent.trust.sessions import (
    NONCE_BYTES,
    OK_TYP,
    SECRET_BYTES,
    Prekey,
    SessionOpening,
    connection_nonce,
    open_roll_call,
    open_session,
    open_session_ok,
    sign_bye,
)
from device_agent.trust.signed_job import JOB_SKEW

OPENING_FIRST_SECONDS = 4.0
OPENING_FLOOR_SECONDS = 2.0
OPENING_CEILING_SECONDS = 60.0
"""Waits before an opening that got no answer is made anew."""

REOPEN_SECONDS = 1.0
"""Within so long every device of a site opens another session when the station has started anew."""

RENEW_SHARES = (0.8, 0.95)
"""The part of a session's day after which its device opens the next one."""

FRAME = b"\x01"

Publish = Callable[[str, bytes], object]


class Guard:
    """Implements ``DeviceGuard`` over a device's identity; ``marks`` is what its journal says of job numbers."""

    __slots__ = (
        "_answered",
        "_backoff",
        "_beliefs",
        "_clock",
        "_connected",
        "_counters",
        "_fresh",
        "_last_sid",
        "_nonce",
        "_open_at",
        "_opening",
        "_partner",
        "_prefix",
        "_prekey",
        "_publish",
        "_randomness",
        "_renew_at",
        "_session",
        "_since",
        "identity",
        "index",
    )

    def __init__(
        self,
        identity: Identity,
        *,
        marks: Mapping[bytes, int],
        publish: Publish,
        clock: Clock,
        counters: Counters,
        randomness: random.Random,
        custom_reach: Custom = no_custom,
    ) -> None:
        self.identity: Final = identity
        self.index: int | None = None
        self._beliefs = Beliefs(identity, marks, clock, counters, custom_reach)
        self._publish = publish
        self._clock = clock
        self._counters = counters
        self._randomness = randomness
        self._prefix = topics.device_job(identity.site, identity.did)[: -len("job")]
        self._backoff = Backoff(
            OPENING_FIRST_SECONDS, OPENING_CEILING_SECONDS, floor=OPENING_FLOOR_SECONDS, source=randomness
        )
        self._connected = False
        self._fresh = False
        self._prekey: Prekey | None = None
        self._last_sid = os.urandom(SID_BYTES)
        self._nonce = b""
        self._answered = False
        self._opening: SessionOpening | None = None
        self._open_at: float | None = None
        self._session: Session | None = None
        self._since = 0
        self._partner = b""
        self._renew_at = 0.0

    # --- the connection ------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name that targets match."""
        return self.identity.name

    @property
    def session(self) -> str:
        """The open session, empty without one."""
        return self._session.sid.hex() if self._session is not None else ""

    @property
    def trusted(self) -> bool:
        """Whether this connection has shown who its station is."""
        return self._fresh

    def site_may(self, fun: str, arg: list[Any], kwarg: dict[str, Any]) -> list[str]:
        """Whether our site may order this of us now, by its certificate. Raises ``Refused``.

        Returns the folders that paths among the arguments must not leave.
        """
        certificate = self.identity.anchor.site_certificate(self.identity.site)
        if certificate is None:
            raise Refused("unknown_issuer", f"no certificate of {self.identity.site} counts")
        issuer = self._beliefs.issuer(certificate.kid, "job")
        return check_call(issuer, fun, arg, kwarg, custom=self._beliefs.custom_reach)

    def subscriptions(self) -> list[str]:
        """Where this device listens."""
        site, did = self.identity.site, self.identity.did
        # The names of a site's own topics are the same text for each of its devices.
        names = (topics.group_job(site), topics.group_ack(site), topics.trust(site), topics.group_time(site))
        shared = map(sys.intern, names)
        return [topics.device_job(site, did), topics.device_sok(site, did), topics.device_ep(site, did), *shared]

    def begin(self) -> tuple[str, bytes]:
        """A connection is about to be made: its last will, by the nonce that all openings on it will have."""
        self._nonce = connection_nonce(self._last_sid, os.urandom(NONCE_BYTES - SID_BYTES))
        self._answered = False
        self._fresh = False
        self._drop()
        self.index = None
        return self._up("bye"), sign_bye(self.identity.sig, site=self.identity.site, nonce=self._nonce)

    def connected(self) -> None:
        """Subscribed; the retained message of the site is here already or comes next."""
        self._connected = True
        self._backoff.reset()
        if self._fresh:
            self._open(self._clock.monotonic())

    def lost(self) -> None:
        """The connection ended, and the session with it."""
        self._connected = False
        self._drop()

    def tick(self, now: float) -> None:
        """Openings that are due: the first, one that got no answer, one for the next day."""
        if not self._connected or not self._fresh:
            return
        if self._session is not None and self._opening is None and now >= self._renew_at:
            self._backoff.reset()
            self._open(now)
        elif self._open_at is not None and now >= self._open_at:
            self._open(now)

    # --- up ------------------------------------------------------------------------------------------------------

    def send(self, body: bytes) -> None:
        """Seal an encoded message for the station and hand it over; without a session it is dropped and counted."""
        topic = self._up("f")
        try:
            if self._session is None:
                raise Refused("no_session")
            frame = self._session.seal(body, topic, self._clock.monotonic())
        except Refused:
            # What matters is said again in the next session.
            self._counters.dropped += 1
            return
        self._publish(topic, frame)

    def _up(self, kind: str) -> str:
        return topics.device_up(self.identity.site, self.identity.did, kind)

    def _open(self, now: float) -> None:
        """Say who we are, with a new secret: a station takes no opening twice."""
        if self._prekey is None:
            return
        self._open_at = now + self._backoff.next()
        try:
            self._opening = open_session(
                self.identity.sig,
                self._prekey,
                nonce=self._nonce,
                secret=os.urandom(SECRET_BYTES),
                version=self._beliefs.site_version(),
                epoch=self.identity.groups.epoch,
                marks=self._beliefs.marks(),
                now=now,
            )
        except Refused as refused:
            # A prekey that nothing can be sealed to, by the site's own hand.
            self._counters.refused(refused.reason, refused.detail, self.identity.name)
            return
        self._last_sid = self._opening.session.sid
        self._publish(self._up("ses"), self._opening.body)

    def _reopen(self) -> None:
        """The station has forgotten the session: open another, but not all devices of the site at once."""
        self._drop()
        self._backoff.reset()
        self._open_at = self._clock.monotonic() + self._randomness.uniform(0.0, REOPEN_SECONDS)

    def _drop(self) -> None:
        self._session = self._opening = self._open_at = None

    # --- down ----------------------------------------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes) -> Heard | None:
        """Open one message; None when it was for the guard alone. Raises ``Refused``."""
        if len(payload) > limits.MESSAGE_BYTES:
            raise Refused("oversized", f"{len(payload)} bytes, at most {limits.MESSAGE_BYTES}")
        if topic.startswith(self._prefix):
            kind = topic[len(self._prefix) :]
            if kind == "job":
                return self._frame(topic, payload) if payload[:1] == FRAME else self._order(payload, own=True)
            if kind == "sok":
                return self._session_word(payload)
            if kind == "ep":
                self._beliefs.take_epoch(payload)
                return None
        elif topic == topics.group_job(self.identity.site):
            return self._order(payload, own=False)
        elif topic == topics.group_ack(self.identity.site):
            return self._ack(payload)
        elif topic == topics.trust(self.identity.site):
            return self._bundle(payload)
        elif topic == topics.group_time(self.identity.site):
            self._beliefs.take_time_beacon(payload)
            return None
        raise Refused("bad_topic", topic[:200])

    def _bundle(self, payload: bytes) -> Heard | None:
        known, had = self._prekey, self._session is not None
        try:
            self._prekey = self._beliefs.take_bundle(payload)
        finally:
            self._end_if_revoked()
        first, self._fresh = not self._fresh, True
        if self._connected and first:
            self._open(self._clock.monotonic())
        elif self._connected and known is not None and known.instance != self._prekey.instance:
            self._reopen()
        return SessionLost() if had and self._session is None else None

    def _end_if_revoked(self) -> None:
        """A session with a station that counts no more is over, whatever else the message said; so is its prekey."""
        if self._session is not None and not self._counts(self._partner):
            self._drop()
        if self._prekey is not None and not self._counts(self._prekey.kid):
            self._prekey = self._opening = self._open_at = None

    def _counts(self, kid: bytes) -> bool:
        try:
            self._beliefs.site_key(kid)
        except Refused:
            return False
        return True

    def _session_word(self, payload: bytes) -> Heard | None:
        site, did = self.identity.site, self.identity.did
        if cose.kind(payload) != OK_TYP:
            sid = self._session.sid if self._session is not None else b""
            open_roll_call(payload, self._beliefs.site_key, device=did, site=site, sid=sid)
            self._reopen()
            return SessionLost()
        word = open_session_ok(payload, self._beliefs.site_key, device=did, site=site, nonce=self._nonce)
        if self._opening is None:
            return None  # Said twice, to two openings.
        if self._answered and self._beliefs.is_past(word):
            # The site's clock was set back, or this was recorded: the answer to another question tells. The last will
            # of this connection names the one before, so the site learns of our end by our silence.
            self._nonce, self._answered = os.urandom(NONCE_BYTES), False
            self._reopen()
            return None
        self._beliefs.take_ok(word, fresh=not self._answered)
        self._session, self._opening, self._open_at = self._opening.session, None, None
        self._answered = True
        self._since, self._partner = word.issued, word.kid
        self.index = word.index
        self._renew_at = self._session.opened + SESSION_SECONDS * self._randomness.uniform(*RENEW_SHARES)
        if word.epoch > self.identity.groups.epoch:
            self.send(encode(EpochWanted()))
        return SessionOpened()

    def _frame(self, topic: str, payload: bytes) -> Welcome | Confirm | Answer | Renamed | None:
        if self._session is None:
            raise Refused("unknown_session", payload[2:10].hex())
        message = decode_downward(self._session.open(payload, topic, self._clock.monotonic()))
        if isinstance(message, Certificate):
            return Renamed() if self._beliefs.take_certificate(message.body) else None
        return message

    def _order(self, payload: bytes, *, own: bool) -> SignedDelivery | Cancelled | None:
        """A job or its cancellation. A bit that is clear withholds it before anything is verified."""
        offered = read_delivery(payload)
        bits = offered.bitmap
        if bits is not None and (self.index is None or not bitmap.has(bits, self.index)):
            self._counters.ignored += 1
            return None
        if isinstance(offered, CancelDelivery):
            cancelled = open_cancel(offered.cancel, self._beliefs.site_key, site=self.identity.site)
            return Cancelled(cancelled.jid, named=own or bits is not None)
        return vouched(offered.job, offered.remaining, self._beliefs, self._clock.monotonic())

    def _ack(self, payload: bytes) -> Confirm | None:
        if self.index is None:
            return None
        word = open_ack_for(self.index, payload, self._beliefs.site_key, site=self.identity.site)
        if word is None:
            return None
        if word.issued < self._since - JOB_SKEW:
            # Recorded: places in the bitmap may have been those of another register then.
            raise Refused("stale_ack", f"issued at {word.issued}, the session at {self._since}")
        return Confirm(list(word.jids))
