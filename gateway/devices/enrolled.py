"""One device's enrollment, as the station knows it and as a row of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Final, Literal

from device_agent.trust import keys
from gateway.store.writer import Statement

EnrollmentState = Literal["pending", "accepted", "quarantined", "rejected", "revoked"]
"""Quarantined is a device that was accepted, of which two were seen: an operator accepts it again, or revokes it."""

BELONGING: Final = ("accepted", "quarantined")
"""States in which a device has its name and its place."""

Proof = Literal["", "fingerprint", "token", "expected", "pattern", "first_use"]
"""By what a device was let in: a compared fingerprint, a join token, a list of expected keys. Two prove nothing: a
pattern over what it says of itself, and the host key that an SSH device showed when it was first met."""

SPENT_BYTES: Final = 32 * 16
"""How many confirmed requests are remembered of a device: a replay of one of them is known for what it is."""

LOAD = (
    "SELECT did, state, name, place, sig, kem, serial, model, address, certificate, password_hash, password_next,"
    " asked, spent, proof, unproven, token, accepted_by, accepted_at, confirmed_at, first_seen, last_seen, detail, link"
    " FROM enrolled ORDER BY last_seen, did"
)
_PUT = (
    "INSERT INTO enrolled (did, state, name, place, sig, kem, serial, model, address, certificate, password_hash,"
    " password_next, asked, spent, proof, unproven, token, accepted_by, accepted_at, confirmed_at, first_seen,"
    " last_seen, detail, link) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (did) DO UPDATE SET state=excluded.state, name=excluded.name, place=excluded.place,"
    " kem=excluded.kem, serial=excluded.serial, model=excluded.model, address=excluded.address,"
    " certificate=excluded.certificate, password_hash=excluded.password_hash, password_next=excluded.password_next,"
    " asked=excluded.asked, spent=excluded.spent, proof=excluded.proof, unproven=excluded.unproven,"
    " token=excluded.token, accepted_by=excluded.accepted_by, accepted_at=excluded.accepted_at,"
    " confirmed_at=excluded.confirmed_at, last_seen=excluded.last_seen, detail=excluded.detail"
)
_DROP = "DELETE FROM enrolled WHERE did = ? AND state = 'pending'"
_SEEN = "UPDATE enrolled SET last_seen = ? WHERE did = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """One device. ``did`` is text, times are wall seconds; ``serial`` and ``model`` are what it says of itself.

    ``place`` is its index in the site's bitmaps, -1 while it has none.
    ``password_hash`` is what the broker lets it in by; ``password_next`` takes its place when the device confirms the
    answer to the request ``asked``, so that a replayed request locks nobody out.
    """

    did: str
    state: EnrollmentState
    name: str = ""
    place: int = -1
    sig: bytes = field(repr=False)
    kem: bytes = field(repr=False)
    serial: str
    model: str
    address: str = ""
    certificate: bytes = field(default=b"", repr=False)
    password_hash: str = field(default="", repr=False)
    password_next: str = field(default="", repr=False)
    asked: bytes = field(default=b"", repr=False)
    spent: bytes = field(default=b"", repr=False)
    proof: Proof = ""
    unproven: bool = False
    token: str = ""
    accepted_by: str = ""
    accepted_at: float | None = None
    confirmed_at: float | None = None
    first_seen: float
    last_seen: float
    detail: str = ""
    link: str = "mqtt"
    """``ssh`` for one that was added by an operator and has no agent: it never asks for anything."""

    @property
    def kid(self) -> bytes:
        """How the device's proofs name it."""
        return keys.kid(self.sig)

    @property
    def fingerprint(self) -> str:
        """What a person compares."""
        return keys.fingerprint(self.sig)

    @property
    def label(self) -> str:
        """What to call it in words for people."""
        return self.name or self.did

    @property
    def active(self) -> bool:
        """Whether it has taken its answer: the broker may know it."""
        return self.state == "accepted" and bool(self.password_hash)

    @property
    def rejoining(self) -> bool:
        """Whether it belongs here and must still come for its answer, or for another password."""
        return self.link == "mqtt" and self.state == "accepted" and (not self.password_hash or bool(self.password_next))

    def has_confirmed(self, digest: bytes) -> bool:
        """Whether this request was confirmed by the device before."""
        return any(self.spent[place : place + len(digest)] == digest for place in range(0, len(self.spent), 16))

    def view(self, site: str) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "kind": "device",
            "site": site,
            "name": self.name,
            "did": self.did,
            "state": self.state,
            "fingerprint": self.fingerprint,
            "key": self.sig.hex(),
            "serial": self.serial,
            "model": self.model,
            "address": self.address or None,
            "proof": self.proof,
            "unproven": self.unproven,
            "token": self.token or None,
            "accepted_by": self.accepted_by,
            "accepted_at": self.accepted_at,
            "confirmed_at": self.confirmed_at,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "detail": self.detail,
            "link": self.link,
        }


def from_row(row: Sequence[Any]) -> Enrolled:
    """A device from a row of ``LOAD``."""
    facts = dict(zip(Enrolled.__dataclass_fields__, row, strict=True))
    return Enrolled(**{**facts, "unproven": bool(facts["unproven"])})


def putting(devices: Sequence[Enrolled]) -> Statement:
    """The statement that puts devices on disk as they are."""
    return (_PUT, [astuple(device) for device in devices])


def dropping(dids: Sequence[str]) -> Statement:
    """The statement that lets pending devices go."""
    return (_DROP, [(did,) for did in dids])


def seen(devices: Sequence[Enrolled]) -> Statement:
    """The statement that keeps when devices were heard last."""
    return (_SEEN, [(device.last_seen, device.did) for device in devices])
