"""What a gateway tells its masters of who it is, and takes from them of whom to believe.

A relay passes on what its sites told it, and hands down what comes for them. Implements ``upstream.ports.TrustAbove``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from device_agent.errors import OutstationError, Refused
from device_agent.trust.revocations import read_revocations
from device_agent.trust.site_certificate import SiteCertificate
from gateway.devices.authority import Authority
from gateway.devices.site_entry import sign_group_keys
from gateway.devices.site_trust import SiteTrust
from upstream.frames import GroupKeys, LeafRequest, MasterRevocations, SiteRevocations, Told
from upstream.frames import SiteTrust as SiteTrustFrame
from upstream.ports import Refusals

log = logging.getLogger(__name__)


class GroupSource(Protocol):
    """Where this site's group key is kept (``gateway.devices.epochs.Epochs``)."""

    def group_key(self, site: str) -> tuple[int, bytes] | None:
        """The newest epoch and its key; None before there is one."""

    def for_masters(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """The newest epoch, and its key sealed to each master by the master's kid."""

    async def go_above(self, known: int) -> None:
        """A master knows this epoch: when it is above our own, the next key is made, and counted from there."""


class BeaconSink(Protocol):
    """Where time beacons go (``gateway.devices.time_beacons.TimeBeacons``)."""

    async def take(self, body: bytes, link: str) -> None:
        """A beacon came over a link, whose address this is. Raises ``Refused``."""


class TrustAbove:
    """The trust side of an uplink. A station without devices has no ``groups``, one without sites no ``sites``."""

    def __init__(
        self,
        *,
        authority: Authority,
        refusals: Refusals,
        groups: GroupSource | None = None,
        sites: SiteTrust | None = None,
        beacons: BeaconSink | None = None,
    ) -> None:
        self._authority = authority
        self._refusals = refusals
        self._groups = groups
        self._sites = sites
        self._beacons = beacons
        self._changed = asyncio.Event()
        self._sealed: tuple[tuple[bytes, int, int], GroupKeys] | None = None
        authority.on_change(self._news)
        if sites is not None:
            sites.on_change(self._news)

    @property
    def changed(self) -> asyncio.Event:
        """Set after something in ``tells`` changed."""
        return self._changed

    def touch(self) -> None:
        """There is another group key."""
        self._changed.set()

    def hello(self) -> tuple[bytes, bytes]:
        """The request for a site certificate, and the newest certificate; empty for none."""
        certificate = self._authority.certificate
        return self._authority.request(), certificate.body if certificate is not None else b""

    def tells(self) -> list[Told]:
        """All that a master must know of this site and of those behind it."""
        told: list[Told] = []
        certificate = self._authority.certificate
        if certificate is not None and self._groups is not None and self._groups.group_key(self._authority.site):
            told.append(self._own_group(self._groups, certificate))
        leaves = [entry for entry in self._sites.entries() if entry.state == "accepted"] if self._sites else []
        for entry in leaves:
            if entry.request:
                told.append(LeafRequest(entry.site, entry.request, entry.certificate))
            if entry.group is not None:
                told.append(entry.group)
        concerned = {self._authority.site, *(entry.site for entry in leaves)}
        for body in self._authority.anchor.revocation_lists():
            listed = read_revocations(body)
            if listed.site is None:
                told.append(MasterRevocations(listed.kid, body))
            elif listed.site in concerned:
                told.append(SiteRevocations(listed.site, body))
        return told

    async def told(self, trust: SiteTrustFrame, master: str) -> None:
        """A master said whom to believe. What is wrong with it is refused and counted."""
        if trust.root_lists and trust.root_lists[-1] not in self._authority.anchor.root_lists:
            await self._taken(self._authority.install(root_lists=trust.root_lists), master)
        for body in trust.revocations:
            await self._taken(self._authority.install(revocations=[body]), master)
        if trust.certificate:
            await self._taken(self._authority.install(certificate=trust.certificate), master)
        for site, body in trust.leaves:
            if self._sites is not None:
                await self._taken(self._sites.keep_certificate(site, body), master)
        if self._beacons is not None:
            for body in trust.time_beacons:
                await self._taken(self._beacons.take(body, master), master)
        if self._groups is not None and trust.group_epoch:
            await self._taken(self._groups.go_above(trust.group_epoch), master)

    async def _taken(self, taking: Awaitable[object], master: str) -> None:
        try:
            await taking
        except Refused as refusal:
            # One that lags behind is no liar.
            if refusal.reason != "rollback":
                self._refusals.refused("uplink", refusal.reason, master, refusal.detail)
        except OutstationError as error:
            log.error("what a master said of trust was not kept, it says so again at the next welcome error=%s", error)

    def _own_group(self, groups: GroupSource, certificate: SiteCertificate) -> GroupKeys:
        """Sealed anew only when something in it changed: each seal is another one, and would look like news."""
        known = groups.group_key(self._authority.site)
        root = self._authority.anchor.root
        place = (certificate.body, known[0] if known is not None else 0, root.version if root is not None else 0)
        if self._sealed is None or self._sealed[0] != place:
            epoch, keys = groups.for_masters()
            group = sign_group_keys(
                self._authority.signing,
                site=self._authority.site,
                certificate=certificate.body,
                epoch=epoch,
                keys=keys,
            )
            self._sealed = (place, group)
        return self._sealed[1]

    async def _news(self) -> None:
        self._changed.set()
