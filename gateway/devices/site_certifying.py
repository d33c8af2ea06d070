"""Signing the certificates of sites: by a master whose fleet lets it, for as long as they need renewal.

Decisions and signatures over one site's entry; what is kept and told is the business of ``site_trust``.
"""

from __future__ import annotations

import logging

from device_agent.errors import PolicyRefused, Refused
from device_agent.trust.site_certificate import SiteCertificate, sign_site_certificate
from device_agent.trust.site_request import SiteRequest
from gateway.devices.authority import Authority
from gateway.devices.site_entry import SiteEntry
from gateway.fleet.grants import DAY_SECONDS, Grant, granted, grants_shell

log = logging.getLogger(__name__)

RENEW_SECONDS = 7 * DAY_SECONDS
"""A certificate older than this is renewed; one that lasts less than three weeks after a third of its life."""


def standing(authority: Authority, site: str, request: SiteRequest) -> SiteCertificate | None:
    """The newest certificate that counts for exactly these keys; it may have expired."""
    try:
        certificate = authority.anchor.site_by_kid(request.kid, 0.0)
    except Refused:
        return None
    keys = (certificate.sig, certificate.kem, certificate.curve)
    return certificate if certificate.site == site and keys == (request.sig, request.kem, request.curve) else None


def certify(authority: Authority, entry: SiteEntry) -> bool:
    """Put the newest certificate into the entry, signed here where one is due; whether it is new to the entry."""
    request = entry.asked()
    if request is None or entry.state != "accepted" or not authority.may("site-ca"):
        return False
    certificate = standing(authority, entry.site, request)
    now = int(authority.now())
    if certificate is not None and not _is_due(certificate, entry, now):
        # It may have been signed before for an entry that could then not be kept.
        known, entry.certificate = entry.certificate, certificate.body
        return known != certificate.body
    # Newer than the one before even within one second: the newest counts.
    issued = max(now, certificate.issued + 1) if certificate is not None else now
    body = sign_site_certificate(
        authority.signing,
        site=entry.site,
        sig=request.sig,
        kem=request.kem,
        curve=request.curve,
        issued=issued,
        expires=issued + entry.days * DAY_SECONDS,
        policy=entry.policy,
    )
    try:
        authority.anchor.take_site_certificate(body, now)
    except Refused as refusal:
        log.warning("site not certified site=%s reason=%s", entry.site, refusal)
        return False
    entry.certificate = body
    log.info("site certified site=%s days=%d grants=%s", entry.site, entry.days, ",".join(entry.policy.fun))
    return True


def apply_grant(authority: Authority, entry: SiteEntry, grant: Grant) -> None:
    """Put a grant into the entry. Raises ``UsageInvalid``, and ``PolicyRefused`` where it is not this station's."""
    if grant == Grant():
        return
    policy = granted(entry.policy, grant)
    need_certifier(authority, entry.site)
    if grants_shell(policy) and not grants_shell(entry.policy) and not authority.may("root-shell"):
        raise PolicyRefused(
            "this master may not let a site do what is as good as a root shell",
            error_id="policy.no_role",
            found=", ".join(grant.functions),
            allowed="functions of the classes looks, reads and changes, or a master with the role root-shell",
            hint="the holders of the root keys give it: outstation fleet add-master … --root-shell",
        )
    entry.policy = policy
    entry.days = grant.days or entry.days


def need_certifier(authority: Authority, site: str) -> None:
    """Raises ``PolicyRefused`` where this station may not certify sites."""
    try:
        authority.check_role("site-ca")
    except Refused as refused:
        raise PolicyRefused(
            "this station may not certify a site, nor grant anything to one",
            error_id="policy.no_role",
            found=refused.detail or refused.reason,
            allowed="a master that the fleet's root list gives the role site-ca",
            hint=f"outstation keys accept {site} on such a master; without a fleet: outstation fleet init",
        ) from None


def adopt(entry: SiteEntry, certificate: SiteCertificate) -> bool:
    """Take over a certificate by another master, with what it grants, when it is newer; whether it was."""
    if entry.certificate == certificate.body:
        return False
    entry.certificate = certificate.body
    entry.policy = certificate.policy
    entry.days = max(1, round((certificate.expires - certificate.issued) / DAY_SECONDS))
    return True


def _is_due(certificate: SiteCertificate, entry: SiteEntry, now: int) -> bool:
    life = certificate.expires - certificate.issued
    return (
        now - certificate.issued >= min(RENEW_SECONDS, life / 3)
        or certificate.policy != entry.policy
        or life != entry.days * DAY_SECONDS
    )
