"""How a session begins and ends: the station's prekey, the device's opening, the station's word on it, the last will.

The prekey is signed by the site's key, made daily and wiped after two days: traffic that was recorded before stays shut
even to who takes the station's disk. An opening that is seen twice would let recorded frames in again, so the station
remembers the digest of each for as long as its prekey lives.

A device's nonce is half random, and half the name of the session that it opened last before this connection. Of two
machines with one identity each names its own, which is how a station sees that there are two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import claims as c
from device_agent.trust import cose, hpke
from device_agent.trust.addressees import take_device, take_site
from device_agent.trust.cose import FindKey
from device_agent.trust.keys import (
    KID_BYTES,
    PUBLIC_BYTES,
    KemKey,
    SigningKey,
    did,
    did_text,
    kem_public,
)
from device_agent.trust.sealed_claims import header_bytes, take_sealed
from device_agent.trust.session_frames import SID_BYTES, Session

PREKEY_SECONDS: Final = 172_800
PREKEY_SKEW: Final = 120
PREKEY_ID_BYTES: Final = 8
INSTANCE_BYTES: Final = 8
NONCE_BYTES: Final = 16
SECRET_BYTES: Final = 32
MARKS: Final = 16

PREKEY_TYP: Final = "os-pre"
OPENING_TYP: Final = "os-ses"
OK_TYP: Final = "os-sok"
ROLL_CALL_TYP: Final = "os-rol"
BYE_TYP: Final = "os-bye"


@dataclass(frozen=True, slots=True)
class Prekey:
    """What devices seal the secret of a session to. ``instance`` is random for each start of the station."""

    site: str
    issued: int
    expires: int
    kem: bytes
    instance: bytes
    kid: bytes
    body: bytes = field(repr=False)

    @property
    def id(self) -> bytes:
        """How an opening names the prekey it used."""
        return prekey_id(self.kem)


@dataclass(frozen=True, slots=True)
class SessionOpening:
    """A device's own opening: what it sends, and its end of the session."""

    body: bytes
    secret: bytes = field(repr=False)
    nonce: bytes
    session: Session = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnverifiedOpening:
    """An opening as a station read it; nothing of it is known to be true.

    ``version`` and ``epoch`` are the newest the device knows of this site, ``marks`` the job number of each signer
    above which it takes jobs, and ``digest`` what is remembered so that no opening is taken twice.
    """

    did: str
    site: str
    nonce: bytes
    version: int
    epoch: int
    marks: tuple[tuple[bytes, int], ...]
    prekey: bytes
    digest: bytes
    body: bytes = field(repr=False)
    _proof: cose.Unverified = field(repr=False)
    _ad: bytes = field(repr=False)
    _ct: bytes = field(repr=False)

    def opened(self, public: bytes, prekey: KemKey, now: float) -> Session:
        """The station's end, if this device's key signed it and it was sealed to this prekey. Raises ``Refused``."""
        if did_text(did(public)) != self.did:
            raise Refused("unknown_issuer", self.did)
        self._proof.verified(public)
        secret = hpke.open_sealed(prekey, b"os1 ses" + self._ad, self._ct)
        if len(secret) != SECRET_BYTES:
            raise Refused("malformed", "a secret of another length")
        return Session.between(secret, self.body, device=False, opened=now)


@dataclass(frozen=True, slots=True)
class SessionOk:
    """The station's word that it has the session: its time, its newest versions, the device's place in bitmaps."""

    issued: int
    epoch: int
    version: int
    index: int
    kid: bytes = b""


@dataclass(frozen=True, slots=True)
class UnverifiedBye:
    """A last will as it was read. ``nonce`` is that of the opening which it ends."""

    did: str
    site: str
    nonce: bytes
    _proof: cose.Unverified = field(repr=False)

    def verified(self, public: bytes) -> None:
        """Check that this device's key signed it. Raises ``Refused``."""
        if did_text(did(public)) != self.did:
            raise Refused("unknown_issuer", self.did)
        self._proof.verified(public)


# --- the prekey ----------------------------------------------------------------------------------------------------


def prekey_id(public: bytes) -> bytes:
    """The short name of a prekey."""
    return hashlib.sha256(public).digest()[:PREKEY_ID_BYTES]


def sign_prekey(
    key: SigningKey, *, site: str, public: bytes, issued: int, instance: bytes, seconds: int = PREKEY_SECONDS
) -> bytes:
    """A prekey of this site."""
    return cose.sign(
        key, PREKEY_TYP, {c.AUD: site, c.IAT: issued, c.EXP: issued + seconds, c.KEM: public, c.INSTANCE: instance}
    )


def open_prekey(body: bytes, find_key: FindKey, *, site: str, now: float) -> Prekey:
    """A prekey by a signer that counts. ``now`` may be a floor: a device opens a session to learn the time.

    Raises ``Refused``.
    """
    signed = cose.open_signed(body, PREKEY_TYP, find_key)
    c.only(signed.claims, c.AUD, c.IAT, c.EXP, c.KEM, c.INSTANCE)
    prekey = Prekey(
        site=take_site(signed.claims, site),
        issued=c.take_time(signed.claims, c.IAT),
        expires=c.take_time(signed.claims, c.EXP),
        kem=c.take(signed.claims, c.KEM, bytes, size=PUBLIC_BYTES),
        instance=c.take(signed.claims, c.INSTANCE, bytes, size=INSTANCE_BYTES),
        kid=signed.kid,
        body=body,
    )
    kem_public(prekey.kem)
    if not 0 < prekey.expires - prekey.issued <= PREKEY_SECONDS:
        raise Refused("claim_invalid", f"a prekey of {prekey.expires - prekey.issued} s, at most {PREKEY_SECONDS}")
    if now > prekey.expires + PREKEY_SKEW:
        raise Refused("expired", f"prekey, at {prekey.expires}, now {now:.0f}")
    return prekey


# --- the opening ---------------------------------------------------------------------------------------------------


def connection_nonce(before: bytes, fresh: bytes) -> bytes:
    """The nonce of a connection: the session opened last before it (8 bytes, random for none), and 8 fresh bytes."""
    return before + fresh


def session_before(nonce: bytes) -> bytes:
    """The session that whoever made this nonce opened last, before the connection that it is of."""
    return nonce[:SID_BYTES]


def open_session(
    key: SigningKey,
    prekey: Prekey,
    *,
    nonce: bytes,
    secret: bytes,
    version: int,
    epoch: int,
    marks: Sequence[tuple[bytes, int]],
    now: float,
) -> SessionOpening:
    """A device's opening. ``nonce`` (16 bytes) and ``secret`` (32) are fresh; ``now`` is monotonic.

    Of ``marks`` the last 16 go along: signers that were met last.
    """
    header = {
        c.SUB: did_text(key.did),
        c.AUD: prekey.site,
        c.NONCE: nonce,
        c.VER: version,
        c.EPOCH: epoch,
        c.MARKS: [list(mark) for mark in marks[-MARKS:]],
        c.PREKEY: prekey.id,
    }
    sealed = hpke.seal(prekey.kem, b"os1 ses" + header_bytes(header), secret)
    body = cose.sign(key, OPENING_TYP, {**header, c.CT: sealed})
    return SessionOpening(body, secret, nonce, Session.between(secret, body, device=True, opened=now))


def read_session(body: bytes, *, site: str) -> UnverifiedOpening:
    """Read an opening without believing it: whose key and which prekey it wants. Raises ``Refused``."""
    proof = cose.read(body, OPENING_TYP)
    c.only(proof.claims, c.SUB, c.AUD, c.NONCE, c.VER, c.EPOCH, c.MARKS, c.PREKEY, c.CT)
    ad, ct = take_sealed(proof.claims, proof.payload)
    return UnverifiedOpening(
        did=take_device(proof.claims),
        site=take_site(proof.claims, site),
        nonce=c.take(proof.claims, c.NONCE, bytes, size=NONCE_BYTES),
        version=c.take(proof.claims, c.VER, int),
        epoch=c.take(proof.claims, c.EPOCH, int, most=2**32 - 1),
        marks=_marks(c.take(proof.claims, c.MARKS, list, most=MARKS)),
        prekey=c.take(proof.claims, c.PREKEY, bytes, size=PREKEY_ID_BYTES),
        digest=hashlib.sha256(body).digest(),
        body=body,
        _proof=proof,
        _ad=ad,
        _ct=ct,
    )


def _marks(listed: list[object]) -> tuple[tuple[bytes, int], ...]:
    marks: dict[bytes, int] = {}
    for mark in listed:
        if type(mark) is not list or len(mark) != 2:
            raise Refused("claim_invalid", "a mark is a kid and a number")
        signer, seq = mark
        if type(signer) is not bytes or len(signer) != KID_BYTES or type(seq) is not int or not 0 <= seq < 2**64:
            raise Refused("claim_invalid", "a mark is a kid and a number")
        if signer in marks:
            raise Refused("claim_invalid", "two marks for one kid")
        marks[signer] = seq
    return tuple(marks.items())


# --- the station's word --------------------------------------------------------------------------------------------


def sign_session_ok(key: SigningKey, *, device: str, site: str, nonce: bytes, word: SessionOk) -> bytes:
    """The station's word to a device that its session is open; ``nonce`` is the opening's."""
    return cose.sign(
        key,
        OK_TYP,
        {
            c.SUB: device,
            c.AUD: site,
            c.NONCE: nonce,
            c.IAT: word.issued,
            c.EPOCH: word.epoch,
            c.VER: word.version,
            c.INDEX: word.index,
        },
    )


def open_session_ok(body: bytes, find_key: FindKey, *, device: str, site: str, nonce: bytes) -> SessionOk:
    """The station's word on the opening with this nonce. Raises ``Refused``."""
    signed = cose.open_signed(body, OK_TYP, find_key)
    c.only(signed.claims, c.SUB, c.AUD, c.NONCE, c.IAT, c.EPOCH, c.VER, c.INDEX)
    take_device(signed.claims, device)
    take_site(signed.claims, site)
    if c.take(signed.claims, c.NONCE, bytes, size=NONCE_BYTES) != nonce:
        raise Refused("wrong_nonce", "this answers another opening")
    return SessionOk(
        issued=c.take_time(signed.claims, c.IAT),
        epoch=c.take(signed.claims, c.EPOCH, int, most=2**32 - 1),
        version=c.take(signed.claims, c.VER, int),
        index=c.take(signed.claims, c.INDEX, int, most=limits.DEVICES_PER_STATION - 1),
        kid=signed.kid,
    )


def sign_roll_call(key: SigningKey, *, device: str, site: str, sid: bytes, issued: int) -> bytes:
    """The station's word that it does not know this session: open another."""
    return cose.sign(key, ROLL_CALL_TYP, {c.SUB: device, c.AUD: site, c.IAT: issued, c.SID: sid})


def open_roll_call(body: bytes, find_key: FindKey, *, device: str, site: str, sid: bytes) -> int:
    """When the station said that it does not know this very session. Raises ``Refused``, also for an older session."""
    signed = cose.open_signed(body, ROLL_CALL_TYP, find_key)
    c.only(signed.claims, c.SUB, c.AUD, c.IAT, c.SID)
    take_device(signed.claims, device)
    take_site(signed.claims, site)
    if c.take(signed.claims, c.SID, bytes, size=SID_BYTES) != sid:
        raise Refused("unknown_session", "this is about another session")
    return c.take_time(signed.claims, c.IAT)


# --- the last will -------------------------------------------------------------------------------------------------


def sign_bye(key: SigningKey, *, site: str, nonce: bytes) -> bytes:
    """A device's last will for the connection whose opening has this nonce."""
    return cose.sign(key, BYE_TYP, {c.SUB: did_text(key.did), c.AUD: site, c.NONCE: nonce})


def read_bye(body: bytes, *, site: str) -> UnverifiedBye:
    """Read a last will without believing it. Raises ``Refused``."""
    proof = cose.read(body, BYE_TYP)
    c.only(proof.claims, c.SUB, c.AUD, c.NONCE)
    return UnverifiedBye(
        did=take_device(proof.claims),
        site=take_site(proof.claims, site),
        nonce=c.take(proof.claims, c.NONCE, bytes, size=NONCE_BYTES),
        _proof=proof,
    )
