"""A site's certificate: a master says which key speaks for a site, until when, and within which policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.trust import cose
from device_agent.trust.addressees import take_site
from device_agent.trust.carried_keys import confirmed_key, take_confirmed_key
from device_agent.trust.claims import AUD, CNF, CURVE, EXP, IAT, KEM, POL, ROLE, SUB, only, take, take_time
from device_agent.trust.cose import FindKey
from device_agent.trust.keys import PUBLIC_BYTES, SigningKey, kid
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import ROLES, check_roles

SITE_TYP: Final = "os-site"
SITE_SECONDS: Final = 30 * 86_400
"""How long a certificate counts unless somebody says otherwise."""

SITE_ROLES: Final = ("enrol", "job", "revoke", "epoch")
"""What a site may do unless its master says otherwise."""

_CERTIFIABLE = tuple(role for role in ROLES if role != "site-ca")


@dataclass(frozen=True, slots=True)
class SiteCertificate:
    """A site's key and what it may do. ``issuer`` is the kid of the master, ``body`` the certificate as it came."""

    site: str
    sig: bytes
    kem: bytes
    curve: bytes
    issued: int
    expires: int
    roles: tuple[str, ...]
    policy: SitePolicy
    issuer: bytes
    body: bytes = field(repr=False)

    @property
    def kid(self) -> bytes:
        """How the site's proofs name it."""
        return kid(self.sig)


def sign_site_certificate(
    key: SigningKey,
    *,
    site: str,
    sig: bytes,
    kem: bytes,
    curve: bytes,
    issued: int,
    expires: int,
    roles: Sequence[str] = SITE_ROLES,
    policy: SitePolicy | None = None,
) -> bytes:
    """A certificate by a master's key. Raises ``Refused`` for one that nobody would read."""
    claims: dict[int, Any] = {
        SUB: site,
        AUD: site,
        IAT: issued,
        EXP: expires,
        CNF: confirmed_key(sig),
        KEM: kem,
        CURVE: curve,
        ROLE: list(roles),
        POL: (policy or SitePolicy()).to_claims(),
    }
    _from_claims(claims, key.kid, b"")
    return cose.sign(key, SITE_TYP, claims)


def read_site_certificate(body: bytes) -> SiteCertificate:
    """A certificate that nobody has verified. Raises ``Refused``."""
    unverified = cose.read(body, SITE_TYP)
    return _from_claims(unverified.claims, unverified.kid, body)


def open_site_certificate(body: bytes, find_key: FindKey) -> SiteCertificate:
    """A certificate by a signer that counts. Raises ``Refused``."""
    signed = cose.open_signed(body, SITE_TYP, find_key)
    return _from_claims(signed.claims, signed.kid, body)


def _from_claims(claims: dict[int, Any], issuer: bytes, body: bytes) -> SiteCertificate:
    only(claims, SUB, AUD, IAT, EXP, CNF, KEM, CURVE, ROLE, POL)
    site = take_site(claims)
    if take(claims, SUB, str) != site:
        raise Refused("claim_invalid", "a site's certificate is about one site and for another")
    certificate = SiteCertificate(
        site=site,
        sig=take_confirmed_key(claims),
        kem=take(claims, KEM, bytes, size=PUBLIC_BYTES),
        curve=take(claims, CURVE, bytes, size=PUBLIC_BYTES),
        issued=take_time(claims, IAT),
        expires=take_time(claims, EXP),
        roles=check_roles(take(claims, ROLE, list), _CERTIFIABLE),
        policy=SitePolicy.from_claims(take(claims, POL, dict)),
        issuer=issuer,
        body=body,
    )
    if certificate.expires <= certificate.issued:
        raise Refused("claim_invalid", "a certificate that expires before it is issued")
    return certificate
