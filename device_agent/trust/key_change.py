"""A device says which key others are to seal to from now on (``os-kem``), signed by its identity.

It names the session in which it is said. A statement of another session is refused, so one that was recorded never
brings an old key back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from device_agent.errors import Refused
from device_agent.trust import claims as c
from device_agent.trust import cose
from device_agent.trust.addressees import take_device, take_site
from device_agent.trust.keys import PUBLIC_BYTES, SigningKey, did, did_text, kem_public
from device_agent.trust.session_frames import SID_BYTES

TYP: Final = "os-kem"
ABOUT: Final = "device.sealing_key"
"""What the question is about whose body is one of these."""


@dataclass(frozen=True, slots=True)
class UnverifiedKeyChange:
    """A statement as it was read; nothing of it is known to be true."""

    did: str
    site: str
    sid: bytes
    kem: bytes
    _proof: cose.Unverified = field(repr=False)

    def verified(self, public: bytes, sid: bytes) -> bytes:
        """The new public key, if this device's identity signed it for this session. Raises ``Refused``."""
        if did_text(did(public)) != self.did:
            raise Refused("unknown_issuer", self.did)
        self._proof.verified(public)
        if sid != self.sid:
            raise Refused("unknown_session", "a sealing key that was told in another session")
        return self.kem


def sign_key_change(key: SigningKey, *, site: str, sid: bytes, kem: bytes) -> bytes:
    """Seal to this public key from now on; ``sid`` is the session in which it is said."""
    return cose.sign(key, TYP, {c.SUB: did_text(key.did), c.AUD: site, c.SID: sid, c.KEM: kem})


def read_key_change(body: bytes, *, site: str) -> UnverifiedKeyChange:
    """Read a statement without believing it. Raises ``Refused``."""
    proof = cose.read(body, TYP)
    c.only(proof.claims, c.SUB, c.AUD, c.SID, c.KEM)
    change = UnverifiedKeyChange(
        did=take_device(proof.claims),
        site=take_site(proof.claims, site),
        sid=c.take(proof.claims, c.SID, bytes, size=SID_BYTES),
        kem=c.take(proof.claims, c.KEM, bytes, size=PUBLIC_BYTES),
        _proof=proof,
    )
    kem_public(change.kem)
    return change
