"""One key of a site on a master: its standing, and what whoever connects with it claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from device_agent.errors import NotFound, OutstationError, PolicyRefused, Refused, UsageInvalid
from device_agent.trust.site_certificate import SiteCertificate
from device_agent.trust.site_request import SiteRequest, open_site_request
from gateway.fleet.join_words import JOIN
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

    @property
    def identity(self) -> bytes:
        """The signing key that came with it; empty for one that brought none, or nothing that can be read."""
        try:
            return read_request(self.site, self.key, self.request).sig if self.request else b""
        except Refused:
            return b""

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


def nothing_to_accept(
    site: str, wanted: str | None, named: Sequence[SiteKey], everything: Sequence[dict[str, Any]]
) -> OutstationError:
    """Why none of the keys of a site is the one that is wanted."""
    waiting = [entry for entry in named if entry.state == "pending"]
    if wanted is not None and waiting:
        return UsageInvalid(
            "this is not the fingerprint of the gateway: it may be another one that pretends",
            error_id="keys.fingerprint_differs",
            where="--fingerprint",
            found=f"typed {wanted[:60]}; {site} has {fingerprint(waiting[0].key)}",
            allowed="the fingerprint that the gateway itself shows",
            hint=f"outstation keys list   or, if it is a stranger: outstation keys reject {site}",
        )
    decided = [entry for entry in named if entry.state != "accepted" and wanted in {None, fingerprint(entry.key)}]
    known = sorted({f"{view['site']} ({view['state']})" for view in everything})
    return NotFound(
        f"no key of site {site!r} waits to be accepted",
        found=", ".join(known) or "no keys",
        allowed="a pending key by its name, any other one by its fingerprint",
        hint=f"outstation keys accept {site} --fingerprint {fingerprint(decided[0].key)}"
        if decided
        else "outstation keys list",
    )


def revoked_for_ever(entry: SiteKey) -> PolicyRefused:
    return PolicyRefused(
        f"the gateway {fingerprint(entry.key)} of site {entry.site} is revoked, and that is for ever",
        error_id="keys.revoked",
        hint=f"let it begin anew with another state_dir: {JOIN} there, and accept that one",
    )


def another_holds(site: str, holder: SiteKey) -> UsageInvalid:
    return UsageInvalid(
        f"another key is accepted for site {site!r}",
        found=fingerprint(holder.key),
        allowed="one accepted key for a site",
        hint=f"outstation keys reject {site} --fingerprint {fingerprint(holder.key)}",
    )
