"""What a gateway sends to be certified: its keys, signed by itself. That proves the keys are its own, and no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol.messages import SITE_ID_PATTERN
from device_agent.trust import cose
from device_agent.trust.carried_keys import confirmed_key, take_confirmed_key
from device_agent.trust.claims import CNF, CURVE, IAT, KEM, NONCE, SUB, only, take, take_matching, take_time
from device_agent.trust.keys import PUBLIC_BYTES, SigningKey, kid

REQUEST_TYP: Final = "os-srq"
NONCE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """The keys of a gateway that asks to speak for a site."""

    site: str
    sig: bytes
    kem: bytes
    curve: bytes
    nonce: bytes
    issued: int
    body: bytes = field(repr=False)

    @property
    def kid(self) -> bytes:
        """How the site's proofs will name it."""
        return kid(self.sig)


def sign_site_request(key: SigningKey, *, site: str, kem: bytes, curve: bytes, nonce: bytes, issued: int) -> bytes:
    """A request by the key that is to be certified. Raises ``Refused`` for one that nobody would read."""
    claims: dict[int, Any] = {
        SUB: site,
        CNF: confirmed_key(key.public),
        KEM: kem,
        CURVE: curve,
        NONCE: nonce,
        IAT: issued,
    }
    _from_claims(claims, b"")
    return cose.sign(key, REQUEST_TYP, claims)


def open_site_request(body: bytes) -> SiteRequest:
    """A request whose sender has the key it names. Raises ``Refused``."""
    unverified = cose.read(body, REQUEST_TYP)
    request = _from_claims(unverified.claims, body)
    if unverified.kid != request.kid:
        raise Refused("unknown_issuer", "a request is signed by the key it is about")
    unverified.verified(request.sig)
    return request


def _from_claims(claims: dict[int, Any], body: bytes) -> SiteRequest:
    only(claims, SUB, CNF, KEM, CURVE, NONCE, IAT)
    return SiteRequest(
        site=take_matching(claims, SUB, SITE_ID_PATTERN),
        sig=take_confirmed_key(claims),
        kem=take(claims, KEM, bytes, size=PUBLIC_BYTES),
        curve=take(claims, CURVE, bytes, size=PUBLIC_BYTES),
        nonce=take(claims, NONCE, bytes, size=NONCE_BYTES),
        issued=take_time(claims, IAT),
        body=body,
    )
