"""Which keys may speak for which sites: pending until an operator accepts, as Salt's keys are.

One key can be accepted for a site. Another key that claims the same name is denied and shown as such; it can take the
place of the first only after an operator rejected that one. With a fleet, a key is bound to the identity that came with
it, and a certificate by any master of the fleet is an acceptance: whoever was accepted once is accepted everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar

from device_agent.clock import Clock
from device_agent.errors import NotFound, PolicyRefused, Refused, UsageInvalid
from device_agent.parts import Part
from device_agent.protocol import limits, tags
from device_agent.trust.site_certificate import SiteCertificate
from device_agent.trust.site_request import SiteRequest, open_site_request
from gateway.bus import Bus
from gateway.devices.leaf_sites import LeafSites
from gateway.devices.site_entry import SiteEntry
from gateway.devices.site_key import (
    PUT_KEY,
    PUT_SITE,
    Claim,
    SiteKey,
    another_holds,
    nothing_to_accept,
    read_request,
    revoked_for_ever,
    same_keys,
    seen_identity,
)
from gateway.devices.site_trust import SiteTrust
from gateway.fleet.grants import Grant
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer
from upstream.curve import fingerprint, key_text
from upstream.ports import KeyState


class SiteKeys(Part):
    """Implements ``upstream.ports.Admission``; every change is on disk before it counts.

    ``trust`` is what the station keeps of its sites beyond their keys; without it keys are all that counts.
    """

    name: ClassVar[str] = "site-keys"

    def __init__(
        self,
        *,
        station: str,
        writer: Writer,
        reader: Reader,
        bus: Bus,
        metrics: Metrics,
        clock: Clock,
        trust: SiteTrust | None = None,
    ) -> None:
        self._station = station
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._trust = trust
        self._leaves = (
            LeafSites(station=station, trust=trust, bus=bus, metrics=metrics, clock=clock)
            if trust is not None
            else None
        )
        self._keys: dict[str, SiteKey] = {}
        self._deciding = asyncio.Lock()
        self._on_change: Callable[[], Awaitable[None]] = _nobody

    async def open(self) -> None:
        """Load the keys."""
        for row in await self._reader.rows(
            "SELECT key, site, state, address, first_seen, last_seen, request FROM keys"
        ):
            self._keys[row[0]] = SiteKey(*row)

    def on_change(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call after keys were accepted or rejected."""
        self._on_change = call

    def known(self, key: str) -> bool:
        """Whether the key is accepted for some site."""
        entry = self._keys.get(key)
        return entry is not None and entry.state == "accepted"

    def revoked(self, key: str) -> bool:
        """Whether the identity that came with this key was revoked, by whomever of the fleet."""
        entry = self._keys.get(key)
        return self._trust is not None and entry is not None and self._trust.revoked(entry.identity)

    def accepted_sites(self) -> list[str]:
        """The names of the sites that may connect."""
        return sorted(entry.site for entry in self._keys.values() if entry.state == "accepted")

    def of_site(self, site: str) -> SiteKey | None:
        """The accepted key of a site."""
        return next((entry for entry in self._keys.values() if entry.site == site and entry.state == "accepted"), None)

    def views(self) -> list[dict[str, Any]]:
        """Every key, by site and first sight; sites behind a relay too, which are certified here."""
        found = [
            {**entry.view(), "state": "revoked"} if self.revoked(entry.key) else entry.view()
            for entry in self._keys.values()
        ]
        if self._leaves is not None:
            found += self._leaves.views()
        return sorted(found, key=lambda view: (view["site"], view["first_seen"]))

    # --- who connects ----------------------------------------------------------------------------------------------

    async def judge(
        self, site: str, key: str, address: str, request: bytes = b"", certificate: bytes = b""
    ) -> KeyState:
        """The standing of a key that claims a site now, with the request and the certificate it brought."""
        try:
            asked = read_request(site, key, request) if self._trust is not None and request else None
        except Refused as refusal:
            self._metrics.refused("uplink", refusal.reason, f"{site}@{address}", refusal.detail)
            return "denied"
        if asked is not None and self._trust is not None and self._trust.revoked(asked.sig):
            self._metrics.refused("uplink", "revoked", f"{site}@{address}", f"key {fingerprint(key)}")
            return "rejected"
        async with self._deciding:
            claim = Claim(site, key, address, asked, self._vouched(site, key, address, asked, certificate))
            return await self._judge(claim)

    def _vouched(
        self, site: str, key: str, address: str, asked: SiteRequest | None, certificate: bytes
    ) -> SiteCertificate | None:
        if self._trust is None or not certificate:
            return None
        try:
            if self.known(key) and not self._trust.is_news(site, certificate):
                return None
            return self._trust.vouched(site, asked, key, certificate)
        except Refused as refusal:
            # No proof is no crime: the key is judged as any other.
            self._metrics.refused("uplink", refusal.reason, f"{site}@{address}", refusal.detail)
            return None

    async def _judge(self, claim: Claim) -> KeyState:
        site, key, now = claim.site, claim.key, self._clock.wall()
        entry = self._keys.get(key)
        if site == self._station:
            self._metrics.refused("uplink", "own_name", f"{site}@{claim.address}", f"key {fingerprint(key)}")
            return "denied"
        if entry is not None and entry.state == "rejected":
            # Whatever name it takes now: an operator has decided about this key.
            return "rejected"
        if entry is not None and entry.state == "accepted":
            return await self._judge_accepted(entry, claim)
        known = self._trust.get(site) if self._trust is not None else None
        if known is not None and known.is_leaf and known.state == "accepted":
            # Two ways to one site would contradict each other: an operator rejects it here before it comes directly.
            self._metrics.refused("uplink", "behind_relay", f"{site}@{claim.address}", f"it is behind {known.link}")
            return "denied"
        request = claim.request.body if claim.request is not None else b""
        seen = SiteKey(key, site, "pending", claim.address, entry.first_seen if entry else now, now, request)
        holder = self.of_site(site)
        turned_away = known is not None and known.state == "rejected" and known.identity in {b"", seen_identity(claim)}
        if claim.certificate is not None and not turned_away and self._may_follow(holder, claim.certificate):
            return await self._admit(seen, holder, claim)
        if holder is not None:
            if entry is None or entry.site != site:
                self._metrics.refused("uplink", "name_taken", f"{site}@{claim.address}", f"key {fingerprint(key)}")
            seen.state = "denied"
        if entry is not None and (entry.site, entry.state) == (site, seen.state) and same_keys(entry, claim.request):
            entry.last_seen, entry.address = now, claim.address
            return entry.state
        return await self._judged(seen)

    async def _judge_accepted(self, entry: SiteKey, claim: Claim) -> KeyState:
        if entry.site != claim.site:
            # An accepted site that calls itself by another name: its key stays what it is, the claim is refused.
            self._metrics.refused("uplink", "other_name", f"{entry.site}@{claim.address}", f"it claims {claim.site}")
            return "denied"
        if self._trust is not None:
            known = self._trust.get(claim.site)
            if known is not None and known.identity and not self._is_same(known, claim):
                # The key of the link is the right one, and whoever has it now is somebody else.
                self._metrics.refused(
                    "uplink", "other_identity", f"{claim.site}@{claim.address}", f"key {fingerprint(claim.key)}"
                )
                return "denied"
            await self._note(self._trust, known, claim)
        entry.last_seen, entry.address = self._clock.wall(), claim.address
        return entry.state

    def _is_same(self, known: SiteEntry, claim: Claim) -> bool:
        if claim.request is None:
            return False
        return known.identity == claim.request.sig or self._is_newer(claim.site, claim.certificate)

    def _is_newer(self, site: str, certificate: SiteCertificate | None) -> bool:
        """Whether a master has certified this after what is known here of the site."""
        known = self._trust.newest(site) if self._trust is not None else None
        return certificate is not None and known is not None and certificate.issued > known.issued

    def _may_follow(self, holder: SiteKey | None, certificate: SiteCertificate) -> bool:
        return holder is None or self._is_newer(certificate.site, certificate)

    async def _note(self, trust: SiteTrust, known: SiteEntry | None, claim: Claim) -> None:
        """Keep what an accepted site brought, where it is new."""
        request, certificate = claim.request, claim.certificate
        if request is None:
            return
        asked = known.asked() if known is not None else None
        is_known = asked is not None and (asked.sig, asked.kem, asked.curve) == (
            request.sig,
            request.kem,
            request.curve,
        )
        if is_known and not self._is_newer(claim.site, certificate):
            return
        async with trust.changing:
            await trust.keep(trust.draft(claim.site, claim.site, request=request.body, certificate=certificate))

    async def _admit(self, seen: SiteKey, holder: SiteKey | None, claim: Claim) -> KeyState:
        """A certificate by a master of the fleet is the acceptance; a key with an older one gives way."""
        assert self._trust is not None, "only it vouches"
        if holder is not None:
            await self._judged(replace(holder, state="denied"))
        async with self._trust.changing:
            draft = self._trust.draft(seen.site, seen.site, request=seen.request or None, certificate=claim.certificate)
            return await self._judged(replace(seen, state="accepted"), draft)

    # --- what operators decide -------------------------------------------------------------------------------------

    async def accept(self, site: str, wanted: str | None, grant: Grant | None = None) -> list[dict[str, Any]]:
        """Accept the pending key of a site, or grant more to an accepted one.

        Raises ``NotFound``; ``UsageInvalid`` when several claim the name, and for a grant that cannot be;
        ``PolicyRefused`` when it is not this station's to grant.
        """
        async with self._deciding:
            changed = await self._accept(site, wanted, grant or Grant())
        await self._tell("accept", changed)
        return changed

    async def accept_request(self, body: bytes, site: str, grant: Grant | None = None) -> list[dict[str, Any]]:
        """Accept a site that has never knocked, by the request that somebody carried here."""
        try:
            request = open_site_request(body)
            if request.site != site:
                raise Refused("wrong_site", f"it is the request of {request.site}")
        except Refused as refusal:
            raise UsageInvalid(
                f"this is no request of site {site!r}",
                error_id="key.bad_request",
                found=str(refusal),
                allowed="what `outstation gateway init` printed on that gateway",
                hint="take it from the gateway again: outstation gateway init",
            ) from None
        if self._trust is not None:
            self._trust.need_certifier(site)
        async with self._deciding:
            key = key_text(request.curve)
            holder = self.of_site(site)
            if holder is not None and holder.key != key:
                raise another_holds(site, holder)
            known = self._trust.get(site) if self._trust is not None else None
            if holder is not None and known is not None and known.identity not in {b"", request.sig}:
                raise another_holds(site, holder)
            now = self._clock.wall()
            before = self._keys.get(key)
            entry = SiteKey(key, site, "accepted", "", before.first_seen if before else now, now, body)
            await self._accepted(entry, grant or Grant())
        await self._tell("accept", [entry.view()])
        return [entry.view()]

    def bundle(self, site: str) -> str:
        """All that an accepted site needs which has never seen a master. Raises ``PolicyRefused`` without a fleet."""
        if self._trust is None:
            raise PolicyRefused("this station keeps no certificates of sites", error_id="policy.no_role")
        return self._trust.bundle(site).text()

    async def _accept(self, site: str, wanted: str | None, grant: Grant) -> list[dict[str, Any]]:
        candidates = [entry for entry in self._named(site, wanted) if entry.state != "accepted"]
        if wanted is None:
            candidates = [entry for entry in candidates if entry.state == "pending"]
        holder = self.of_site(site)
        if not candidates and holder is not None and grant != Grant() and wanted in {None, fingerprint(holder.key)}:
            await self._accepted(holder, grant)
            return [holder.view()]
        if not candidates and holder is None and self._leaves is not None:
            leaf = self._leaves.get(site, wanted)
            if leaf is not None and (leaf.state == "pending" or wanted or grant != Grant()):
                return [await self._leaves.accept(leaf, grant)]
        if not candidates:
            raise nothing_to_accept(site, wanted, self._named(site, None), self.views())
        if len(candidates) > 1:
            raise UsageInvalid(
                f"several keys claim site {site!r}",
                found=", ".join(fingerprint(entry.key) for entry in candidates),
                allowed="the one whose fingerprint the gateway itself shows: outstation keys list (there)",
                hint=f"outstation keys accept {site} --fingerprint {fingerprint(candidates[0].key)}",
            )
        if holder is not None:
            raise another_holds(site, holder)
        entry = replace(candidates[0], state="accepted", last_seen=self._clock.wall())
        await self._accepted(entry, grant)
        return [entry.view()]

    async def _accepted(self, entry: SiteKey, grant: Grant) -> None:
        """Accept a key, with what its site may do from now on; or only that, for one that is accepted already."""
        if self._trust is not None and self._trust.revoked(entry.identity):
            raise revoked_for_ever(entry)
        if self._trust is None:
            if grant != Grant():
                raise PolicyRefused("this station keeps no certificates of sites", error_id="policy.no_role")
            await self._judged(entry)
            return
        known = self.known(entry.key)
        async with self._trust.changing:
            draft = self._trust.draft(
                entry.site, entry.site, request=entry.request if entry.request or not known else None, grant=grant
            )
            await (self._trust.keep(draft) if known else self._judged(entry, draft))

    async def reject(self, site: str, wanted: str | None) -> list[dict[str, Any]]:
        """Reject the keys of a site, accepted ones too. Raises ``NotFound``."""
        async with self._deciding:
            chosen = [entry for entry in self._named(site, wanted) if entry.state != "rejected"]
            leaf = self._leaves.get(site, wanted) if self._leaves is not None and not chosen else None
            if leaf is not None and leaf.state != "rejected" and self._leaves is not None:
                changed = [await self._leaves.reject(leaf)]
            elif chosen:
                changed = [await self._rejected(entry) for entry in chosen]
            else:
                raise NotFound(f"no key of site {site!r} to reject", hint="outstation keys list")
        await self._tell("reject", changed)
        return changed

    async def _rejected(self, entry: SiteKey) -> dict[str, Any]:
        rejected = replace(entry, state="rejected", last_seen=self._clock.wall())
        known = self._trust.get(entry.site) if self._trust is not None and entry.state == "accepted" else None
        if self._trust is None or known is None:
            await self._judged(rejected)
        else:
            async with self._trust.changing:
                await self._judged(rejected, replace(known, state="rejected", certificate=b""))
        return rejected.view()

    def _named(self, site: str, wanted: str | None) -> list[SiteKey]:
        return [
            entry
            for entry in self._keys.values()
            if entry.site == site and (wanted is None or fingerprint(entry.key) == wanted.lower())
        ]

    # --- kept and told ---------------------------------------------------------------------------------------------

    async def _judged(self, entry: SiteKey, trusted: SiteEntry | None = None) -> KeyState:
        """Keep the standing of a key, and with it what its site is trusted with."""
        row = (entry.key, entry.site, entry.state, entry.address, entry.first_seen, entry.last_seen, entry.request)
        statements: list[Statement] = [(PUT_KEY, [row])]
        if entry.state == "accepted":
            statements.append((PUT_SITE, [(entry.site,)]))
        waiting = [other for other in self._keys.values() if other.state in ("pending", "denied")]
        crowded_out = None
        if entry.key not in self._keys and len(waiting) >= limits.PENDING_KEYS:
            crowded_out = min(waiting, key=lambda other: other.last_seen)
            statements.append(("DELETE FROM keys WHERE key = ?", [(crowded_out.key,)]))
        if trusted is not None and self._trust is not None:
            await self._trust.keep(trusted, statements)
        else:
            await self._writer.commit(statements)
        if crowded_out is not None:
            self._keys.pop(crowded_out.key, None)
            self._metrics.refused("uplink", "pending_keys_full", f"{crowded_out.site}@{crowded_out.address}")
        self._keys[entry.key] = entry
        act = {"accepted": "accept", "rejected": "reject", "denied": "denied", "pending": "pend"}[entry.state]
        result = entry.state not in ("rejected", "denied")
        data = {"id": entry.site, "act": act, "pub": entry.key, "result": result}
        await self._bus.fire([self._bus.event(tags.AUTH, data)])
        return entry.state

    async def _tell(self, act: str, changed: list[dict[str, Any]]) -> None:
        await self._bus.fire(
            [self._bus.event(tags.KEY, {"id": v["site"], "act": act, "result": True}) for v in changed]
        )
        await self._on_change()
        if self._trust is not None:
            await self._trust.tell()


async def _nobody() -> None:
    """Until somebody asks to be told."""
