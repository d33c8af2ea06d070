"""Sites behind a relay, on the master that certifies them: pending until an operator accepts, or a master has.

The relay has let them onto its own uplink; here they get their certificate. They never connect here, so they are no
keys of this station: what is kept of them is their entry in ``site_trust``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol import limits, tags
from device_agent.trust.site_certificate import SiteCertificate
from device_agent.trust.site_request import SiteRequest, open_site_request
from gateway.bus import Bus
from gateway.devices.site_entry import SiteEntry
from gateway.devices.site_trust import SiteTrust
from gateway.fleet.grants import Grant
from gateway.metrics import Metrics
from upstream.curve import fingerprint, key_text
from upstream.frames import LeafRequest


class LeafSites:
    """Decides about sites behind relays, with the same words as ``SiteKeys`` about those that connect."""

    def __init__(self, *, station: str, trust: SiteTrust, bus: Bus, metrics: Metrics, clock: Clock) -> None:
        self._station = station
        self._trust = trust
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        trust.on_request(self.take)

    def get(self, site: str, wanted: str | None) -> SiteEntry | None:
        """A site behind a relay that has asked, of this fingerprint when there is one; None when there is none."""
        entry = self._trust.get(site)
        if entry is None or not entry.is_leaf or not entry.request:
            return None
        return entry if wanted is None or fingerprint(_key(entry)) == wanted.lower() else None

    def views(self) -> list[dict[str, Any]]:
        """Every one, as the API shows keys."""
        return [_view(entry) for entry in self._trust.entries() if entry.is_leaf and entry.request]

    async def take(self, link: str, leaf: LeafRequest) -> None:
        """A relay brings the request of a site behind it. Raises ``Refused``."""
        request = open_site_request(leaf.request)
        if request.site != leaf.site or leaf.site == self._station:
            raise Refused("wrong_site", f"{link} brings a request of {request.site} for {leaf.site}")
        self._trust.need_link(leaf.site, link)
        async with self._trust.changing:
            entry = self._judged(link, request, self._vouched(leaf, request))
            if entry is None:
                return
            await self._trust.keep(entry)
        await self._fire(entry)
        await self._trust.tell()

    async def accept(self, entry: SiteEntry, grant: Grant) -> dict[str, Any]:
        """Let it belong here and certify it. Raises ``UsageInvalid`` and ``PolicyRefused`` for a bad grant."""
        async with self._trust.changing:
            accepted = self._trust.draft(entry.site, entry.link, request=entry.request, grant=grant)
            await self._trust.keep(accepted)
        await self._fire(accepted)
        await self._trust.tell()
        return _view(accepted)

    async def reject(self, entry: SiteEntry) -> dict[str, Any]:
        """Turn it away: no certificate is renewed or passed on; another identity that asked meanwhile is pending."""
        async with self._trust.changing:
            rejected = replace(entry, state="rejected", certificate=b"")
            if entry.contender:
                rejected = replace(rejected, state="pending", request=entry.contender, contender=b"")
            await self._trust.keep(rejected)
        await self._fire(rejected)
        await self._trust.tell()
        return _view(rejected)

    def _vouched(self, leaf: LeafRequest, request: SiteRequest) -> SiteCertificate | None:
        if not leaf.certificate:
            return None
        try:
            return self._trust.vouched(leaf.site, request, key_text(request.curve), leaf.certificate)
        except Refused as refusal:
            self._metrics.refused("uplink", refusal.reason, leaf.site, refusal.detail)
            return None

    def _judged(self, link: str, request: SiteRequest, certificate: SiteCertificate | None) -> SiteEntry | None:
        """What is known of the site from now on; None when that is nothing new. Raises ``Refused``."""
        before = self._trust.get(request.site)
        same = before is not None and before.identity == request.sig
        if before is not None and before.state == "rejected" and same:
            return None
        if before is not None and before.state == "accepted" and before.identity and not same:
            known = self._trust.newest(request.site)
            if certificate is None or (known is not None and certificate.issued <= known.issued):
                before.contender = request.body
                raise Refused("other_identity", f"{request.site} asks with another key than was accepted")
        if certificate is not None or (before is not None and before.state == "accepted"):
            entry = self._trust.draft(request.site, link, request=request.body, certificate=certificate)
            return entry if before is None or _changed(before, entry) else None
        if before is not None and before.state == "pending" and same:
            return None
        waiting = [entry for entry in self._trust.entries() if entry.is_leaf and entry.state == "pending"]
        if len(waiting) >= limits.PENDING_KEYS:
            raise Refused("pending_keys_full", f"{len(waiting)} sites behind relays wait")
        now = self._clock.wall()
        return SiteEntry(request.site, link, "pending", request=request.body, first_seen=now, last_seen=now)

    async def _fire(self, entry: SiteEntry) -> None:
        act = {"accepted": "accept", "rejected": "reject", "pending": "pend"}[entry.state]
        data = {"id": entry.site, "act": act, "pub": _key(entry), "result": entry.state != "rejected"}
        await self._bus.fire([self._bus.event(tags.AUTH, data)])


def _changed(before: SiteEntry, after: SiteEntry) -> bool:
    fields = ("link", "state", "request", "certificate", "policy", "days")
    return any(getattr(before, field) != getattr(after, field) for field in fields)


def _key(entry: SiteEntry) -> str:
    request = entry.asked()
    return key_text(request.curve) if request is not None else ""


def _view(entry: SiteEntry) -> dict[str, Any]:
    key = _key(entry)
    return {
        "site": entry.site,
        "state": entry.state,
        "fingerprint": fingerprint(key),
        "key": key,
        "first_seen": entry.first_seen,
        "last_seen": entry.last_seen,
        "address": f"behind {entry.link}",
    }
