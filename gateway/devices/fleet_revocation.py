"""What a master revokes: sites, and the devices that sites have revoked, in one list that every station hears of.

A site that was taken over signs nothing that counts once this list has reached those who would believe it. The list
is kept with the other proofs of this station (``authority``); it only grows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from device_agent.errors import NotFound, OutstationError, PolicyRefused, Refused
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.revocations import read_revocations, sign_revocations
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.authority import Authority
from gateway.devices.device import Device

log = logging.getLogger(__name__)

RejectSite = Callable[[str], Awaitable[object]]
"""Turns away the CURVE keys of a site. Raises ``NotFound`` when there are none."""

RevokedSites = Callable[[], Iterable[str]]
"""Sites that are accepted, whose keys were revoked."""

DEVICES_LISTED = 4000
"""Most that a master's list takes over from sites. Lists of three masters and of a site go to every device in one
message; and a site in the wrong hands must not fill this list, or nobody could put that site out any more."""

TURN = 200
"""Devices looked at before everything else gets its turn."""


class FleetRevocation:
    """Signs this master's list."""

    def __init__(
        self,
        *,
        authority: Authority,
        reject_site: RejectSite,
        revoked_sites: RevokedSites,
        devices: Callable[[], Iterable[Device]],
        audit: AuditBook,
    ) -> None:
        self._authority = authority
        self._devices = devices
        self._revoked_sites = revoked_sites
        self._reject_site = reject_site
        self._audit = audit
        self._adding = asyncio.Lock()

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
        await self._add(frozenset({certificate.kid}))
        deed = Deed(user=user, door=door, action="sites.revoke", subject=site, verdict="allow", why=why)
        await self._audit.write([deed])
        # What it was accepted with is out already; a key that only asks, or has no request, may be left.
        with suppress(NotFound):
            await self._reject_site(site)
        log.warning("site revoked site=%s by=%s why=%s", site, user, why)

    async def look(self) -> None:
        """Turn away sites that were revoked, here or by another master, of whom this one hears from any site."""
        for site in list(self._revoked_sites()):
            try:
                await self._reject_site(site)
            except OutstationError as error:
                log.error("revoked site not turned away, tried again with the next news site=%s error=%s", site, error)
                continue
            log.warning("revoked site turned away site=%s", site)

    async def devices_revoked(self, site: str, kids: frozenset[bytes]) -> None:
        """A site's own list counts: what it names is out for good, also when the site's key counts no more.

        Otherwise a gateway that was restored with new keys would let in what was revoked since its backup.
        """
        fresh = kids - self._listed()
        if fresh and self._authority.master is not None and self._authority.may("revoke"):
            await self._add(self._fitting(site, fresh - await self._of_others(site)))

    def _fitting(self, site: str, kids: frozenset[bytes]) -> frozenset[bytes]:
        room = max(0, DEVICES_LISTED - len(self._listed()))
        if len(kids) > room:
            log.error(
                "revoked devices left out of the fleet's list: it is full site=%s devices=%d", site, len(kids) - room
            )
        return frozenset(sorted(kids)[:room])

    async def _of_others(self, site: str) -> set[bytes]:
        """The keys of the devices of all other sites: those are not this one's to revoke."""
        found = set()
        for place, device in enumerate([each for each in self._devices() if each.site != site and each.certificate], 1):
            with suppress(Refused):
                found.add(read_device_certificate(device.certificate).kid)
            if place % TURN == 0:
                await asyncio.sleep(0)
        return found

    def _listed(self) -> frozenset[bytes]:
        own = self._authority.signing.kid
        lists = map(read_revocations, self._authority.anchor.revocation_lists())
        return next((read.kids for read in lists if read.kid == own), frozenset())

    async def _add(self, kids: frozenset[bytes]) -> None:
        # Two at once would sign two lists of one version, of which the second counts for nobody.
        async with self._adding:
            await self._sign(kids)

    async def _sign(self, kids: frozenset[bytes]) -> None:
        anchor, signing, known = self._authority.anchor, self._authority.signing, self._listed()
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
            if self._authority.master is None:
                raise Refused("no_role", "it is no master of the fleet's root list")
            self._authority.check_role("revoke")
        except Refused as refused:
            raise PolicyRefused(
                "this station may not revoke sites",
                error_id="policy.no_role",
                found=refused.detail or refused.reason,
                allowed="a master that the root list gives the role revoke",
                hint="outstation sites revoke on a master of the fleet",
            ) from None
