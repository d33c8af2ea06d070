"""The time beacon: a master signs what time it is, once an hour, for every device of the fleet (``os-tim``).

It names no site and no device, so one signature serves the whole fleet. It orders nothing: a job would need a number, a
return and a place in the job history. Only a master of the newest root list may sign one. A beacon says that its time
has passed; it never says that a later time has not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose
from device_agent.trust.cose import FindKey
from device_agent.trust.keys import SigningKey

TYP: Final = "os-tim"
EVERY_SECONDS: Final = 3600.0
"""How often a master signs one."""

BODY_BYTES: Final = 256
"""Largest beacon; a real one has 110 bytes."""


@dataclass(frozen=True, slots=True)
class TimeBeacon:
    """A time that has passed, in seconds since 1970, and the kid of the master that signed it."""

    issued: int
    kid: bytes
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnverifiedBeacon:
    """A time beacon as it was read; nothing of it is known to be true."""

    issued: int
    kid: bytes
    body: bytes = field(repr=False)
    _proof: cose.Unverified = field(repr=False)

    def verified(self, find_key: FindKey) -> TimeBeacon:
        """Check the signature with the key of a signer that counts. Raises ``Refused``."""
        signed = self._proof.verified(find_key(self.kid))
        return TimeBeacon(self.issued, signed.kid, self.body)


def sign_time_beacon(key: SigningKey, issued: int) -> bytes:
    """A time beacon by a master."""
    return cose.sign(key, TYP, {c.IAT: issued})


def read_time_beacon(body: bytes) -> UnverifiedBeacon:
    """Read a time beacon without believing it. Raises ``Refused``."""
    if len(body) > BODY_BYTES:
        raise Refused("oversized", f"{len(body)} bytes, at most {BODY_BYTES}")
    proof = cose.read(body, TYP)
    c.only(proof.claims, c.IAT)
    return UnverifiedBeacon(c.take_time(proof.claims, c.IAT), proof.kid, body, proof)


def open_time_beacon(body: bytes, find_key: FindKey) -> TimeBeacon:
    """A time beacon by a signer that counts. Raises ``Refused``."""
    return read_time_beacon(body).verified(find_key)
