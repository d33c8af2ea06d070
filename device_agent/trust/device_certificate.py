"""A device's certificate: a site or a master says which name a key has. It is the record that it was accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol.messages import DEVICE_ID_PATTERN
from device_agent.trust import cose, keys
from device_agent.trust.addressees import take_device, take_site
from device_agent.trust.carried_keys import confirmed_key, take_confirmed_key
from device_agent.trust.claims import AUD, CNF, EXP, FLAGS, IAT, KEM, NAME, SUB, only, take, take_matching, take_time
from device_agent.trust.cose import FindKey
from device_agent.trust.keys import PUBLIC_BYTES, SigningKey

DEVICE_TYP: Final = "os-dev"
UNPROVEN: Final = 1
"""The flag of a device that was accepted although nothing proved which one it is."""


@dataclass(frozen=True, slots=True)
class DeviceCertificate:
    """A device's keys and its name in a site. ``issuer`` is the kid of the signer, ``body`` the certificate as it came.

    ``unproven`` says that nobody compared a fingerprint and no token or list named the key when it was accepted.
    """

    did: bytes
    site: str
    sig: bytes
    kem: bytes
    name: str
    issued: int
    expires: int
    unproven: bool
    issuer: bytes
    body: bytes = field(repr=False)

    @property
    def kid(self) -> bytes:
        """How the device's proofs name it."""
        return self.did[: keys.KID_BYTES]

    @property
    def did_text(self) -> str:
        """The identity as it stands in topics."""
        return keys.did_text(self.did)


def sign_device_certificate(
    key: SigningKey,
    *,
    site: str,
    sig: bytes,
    kem: bytes,
    name: str,
    issued: int,
    expires: int,
    unproven: bool = False,
) -> bytes:
    """A certificate by the key of a site or a master. Raises ``Refused`` for one that nobody would read."""
    claims: dict[int, Any] = {
        SUB: keys.did_text(keys.did(sig)),
        AUD: site,
        IAT: issued,
        EXP: expires,
        CNF: confirmed_key(sig),
        KEM: kem,
        NAME: name,
        FLAGS: UNPROVEN if unproven else 0,
    }
    _from_claims(claims, key.kid, b"")
    return cose.sign(key, DEVICE_TYP, claims)


def read_device_certificate(body: bytes) -> DeviceCertificate:
    """A certificate that nobody has verified. Raises ``Refused``."""
    unverified = cose.read(body, DEVICE_TYP)
    return _from_claims(unverified.claims, unverified.kid, body)


def open_device_certificate(body: bytes, find_key: FindKey) -> DeviceCertificate:
    """A certificate by a signer that counts. Raises ``Refused``."""
    signed = cose.open_signed(body, DEVICE_TYP, find_key)
    return _from_claims(signed.claims, signed.kid, body)


def _from_claims(claims: dict[int, Any], issuer: bytes, body: bytes) -> DeviceCertificate:
    only(claims, SUB, AUD, IAT, EXP, CNF, KEM, NAME, FLAGS)
    sig = take_confirmed_key(claims)
    identity = keys.did(sig)
    if take_device(claims) != keys.did_text(identity):
        raise Refused("claim_invalid", "the identity is not that of the key")
    certificate = DeviceCertificate(
        did=identity,
        site=take_site(claims),
        sig=sig,
        kem=take(claims, KEM, bytes, size=PUBLIC_BYTES),
        name=take_matching(claims, NAME, DEVICE_ID_PATTERN),
        issued=take_time(claims, IAT),
        expires=take_time(claims, EXP),
        unproven=take(claims, FLAGS, int, most=UNPROVEN) == UNPROVEN,
        issuer=issuer,
        body=body,
    )
    if certificate.expires <= certificate.issued:
        raise Refused("claim_invalid", "a certificate that expires before it is issued")
    return certificate
