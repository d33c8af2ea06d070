"""One key of a site on a master: its standing, and what whoever connects with it claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from device_agent.errors import Refused, UsageInvalid
from device_agent.trust.site_certificate import SiteCertificate
from device_agent.trust.site_request import SiteRequest, open_site_request
from upstream.curve import fingerprint, key_bytes, key_text
from upstream.ports import KeyState

PUT_KEY = (
    "INSERT INTO keys (key, site, state, address, first_seen, last_seen, request) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET site=excluded.site, state=excluded.state, address=excluded.address,"
    " last_seen=excluded.last_seen, request=excluded.request"
)
PUT_SITE = "INSERT OR IGNORE INTO sites (site) VALUES (?)"


@dataclass
class SiteKey:
    """A site's CURVE key and its standing. Times are wall seconds; ``request`` is what came with it last."""

    key: str
    site: str
    state: KeyState
    address: str
    first_seen: float
    last_seen: float
    request: bytes = b""

    def view(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "site": self.site,
            "state": self.state,
            "fingerprint": fingerprint(self.key),
            "key": self.key,
            "first_seen": self.first_seen,
            "last_seen": self.last_seen,
            "address": self.address,
        }


@dataclass(frozen=True)
class Claim:
    """A key that claims a site now, with what it brought; both proofs hold when they are there."""

    site: str
    key: str
    address: str
    request: SiteRequest | None
    certificate: SiteCertificate | None


def read_request(site: str, key: str, request: bytes) -> SiteRequest:
    """The request that came with a key's hello. Raises ``Refused`` for one that is somebody else's."""
    asked = open_site_request(request)
    if asked.site != site:
        raise Refused("wrong_site", f"{site} brings the request of {asked.site}")
    if asked.curve != key_bytes(key):
        raise Refused(
            "foreign_request", f"key {fingerprint(key)} brings a request for {fingerprint(key_text(asked.curve))}"
        )
    return asked


def seen_identity(claim: Claim) -> bytes:
    """The signing key that a claim is made with; empty when it brings neither a request nor a certificate."""
    if claim.request is not None:
        return claim.request.sig
    return claim.certificate.sig if claim.certificate is not None else b""


def same_keys(entry: SiteKey, request: SiteRequest | None) -> bool:
    """Whether the request that is kept is for the same keys; each start of a gateway writes it anew."""
    if request is None or not entry.request:
        return (request is None) == (not entry.request)
    known = open_site_request(entry.request)
    return (known.sig, known.kem, known.curve) == (request.sig, request.kem, request.curve)


def another_holds(site: str, holder: SiteKey) -> UsageInvalid:
    return UsageInvalid(
        f"another key is accepted for site {site!r}",
        found=fingerprint(holder.key),
        allowed="one accepted key for a site",
        hint=f"outstation keys reject {site} --fingerprint {fingerprint(holder.key)}",
    )
