"""What a master revokes: sites, and the devices that sites have revoked, in one list that every station hears of.

A site that was taken over signs nothing that counts once this list has reached those who would believe it. The list
is kept with the other proofs of this station (``authority``); it only grows.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection

from device_agent.errors import NotFound, PolicyRefused, Refused
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.revocations import read_revocations, sign_revocations
from gateway.audit.book import AuditBook, Deed
from gateway.devices.authority import Authority
from gateway.devices.device import Device

log = logging.getLogger(__name__)

RejectSite = Callable[[str], Awaitable[object]]
"""Turns away the CURVE keys of a site. Raises ``NotFound`` when there are none."""


class FleetRevocation:
    """Signs this master's list."""

    def __init__(self, *, authority: Authority, reject_site: RejectSite, audit: AuditBook) -> None:
        self._authority = authority
        self._reject_site = reject_site
        self._audit = audit

    async def revoke_site(self, site: str, user: str, door: str, why: str) -> None:
        """Put a site's gateway out for good: its certificate, and its keys on the uplink.

        Raises ``NotFound`` for a site without a certificate, ``PolicyRefused`` when this master may not revoke.
        """
        self._need_role()
        certificate = self._authority.anchor.site_certificate(site)
        if certificate is None:
            known = sorted(entry.site for entry in self._authority.anchor.site_certificates())
            raise NotFound(
                f"no certificate of site {site!r} counts here",
                error_id="site.unknown",
                found=", ".join(known) or "no certificates",
                hint="outstation sites list",
            )
        await self._add({certificate.kid})
        deed = Deed(user=user, door=door, action="sites.revoke", subject=site, verdict="allow", why=why)
        await self._audit.write([deed])
        try:
            await self._reject_site(site)
        except NotFound:
            log.info("site revoked that has no key here site=%s", site)
        log.warning("site revoked site=%s by=%s why=%s", site, user, why)

    async def devices_revoked(self, devices: Collection[Device]) -> None:
        """Sites have revoked devices: from now on no other site believes them either."""
        kids = set()
        for device in devices:
            try:
                certificate = read_device_certificate(device.certificate)
            except Refused:
                continue
            # A site speaks for its own devices; whose certificate it sends along is for the anchor to judge.
            if certificate.site == device.site and certificate.name == device.id:
                kids.add(certificate.kid)
        if kids and self._authority.may("revoke"):
            await self._add(kids)

    async def _add(self, kids: set[bytes]) -> None:
        anchor, signing = self._authority.anchor, self._authority.signing
        mine = [read for read in map(read_revocations, anchor.revocation_lists()) if read.kid == signing.kid]
        known = mine[0].kids if mine else frozenset()
        if kids <= known:
            return
        body = sign_revocations(
            signing,
            version=anchor.site_version(signing.kid) + 1,
            kids=known | kids,
            issued=int(self._authority.now()),
        )
        await self._authority.install(revocations=[body])

    def _need_role(self) -> None:
        try:
            self._authority.check_role("revoke")
        except Refused as refused:
            raise PolicyRefused(
                "this station may not revoke sites",
                error_id="policy.no_role",
                found=refused.detail or refused.reason,
                allowed="a master that the root list gives the role revoke",
                hint="outstation sites revoke on a master of the fleet",
            ) from None
