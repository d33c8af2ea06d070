"""What a station with sites keeps of each: its request, its certificate and grants, its group key.

A master signs certificates here and renews them; a relay, which may not, passes the requests of its sites up and their
certificates down, and their group keys as they are. Implements ``upstream.ports.TrustBelow``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import OutstationError, PolicyRefused, Refused
from device_agent.parts import Part
from device_agent.trust import hpke
from device_agent.trust.keys import kid as kid_of
from device_agent.trust.revocations import read_revocations
from device_agent.trust.site_certificate import SiteCertificate, read_site_certificate
from device_agent.trust.site_request import SiteRequest
from gateway.devices import site_certifying
from gateway.devices.authority import Authority
from gateway.devices.epochs import master_info
from gateway.devices.registry import Registry
from gateway.devices.site_entry import SELECT_ALL, SiteEntry, check_group_keys, entry_of
from gateway.fleet.bundle import Bundle
from gateway.fleet.grants import Grant
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer
from upstream import frames
from upstream.curve import key_bytes

log = logging.getLogger(__name__)

LOOK_SECONDS = 3600.0

Call = Callable[[], Awaitable[None]]
TakeRequest = Callable[[str, frames.LeafRequest], Awaitable[None]]
DevicesRevoked = Callable[[str, frozenset[bytes]], Awaitable[None]]


class SiteTrust(Part):
    """The sites below, by name."""

    name: ClassVar[str] = "site-trust"

    def __init__(
        self,
        *,
        authority: Authority,
        registry: Registry,
        writer: Writer,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._authority = authority
        self._registry = registry
        self._writer = writer
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._entries: dict[str, SiteEntry] = {}
        self._group_keys: dict[str, tuple[int, frames.GroupKeys, tuple[int, bytes] | None]] = {}
        self._leaves: dict[str, list[SiteEntry]] | None = None
        self._lists: tuple[int, dict[str | None, list[bytes]]] | None = None
        self._calls: list[Call] = []
        self.changing = asyncio.Lock()
        """Held from reading an entry until its change is kept."""
        self._take_request: TakeRequest = _nobody
        self._devices_revoked: DevicesRevoked = _not_a_master
        self.time_beacons: Callable[[], list[bytes]] = list

    async def open(self) -> None:
        """Load the sites, and believe their certificates again."""
        for row in await self._reader.rows(SELECT_ALL):
            try:
                entry = entry_of(row)
            except Refused as refusal:
                log.error("what is kept of a site cannot be read site=%s reason=%s", row[0], refusal)
                continue
            self._entries[entry.site] = entry
            self._believe(entry)
        self._authority.reconsider()
        self._authority.on_change(self._look)
        self.spawn(self._run(), "renew")

    def on_change(self, call: Call) -> None:
        """Call whenever there is news for the sites or for the masters."""
        self._calls.append(call)

    def on_revocations(self, call: DevicesRevoked) -> None:
        """Call with a site and the keys of the devices that it has revoked."""
        self._devices_revoked = call

    def on_request(self, call: TakeRequest) -> None:
        """Call with a relay's name when it brings the request of a site behind it."""
        self._take_request = call

    # --- asked -----------------------------------------------------------------------------------------------------

    def get(self, site: str) -> SiteEntry | None:
        """What is kept of a site."""
        return self._entries.get(site)

    def entries(self) -> Iterable[SiteEntry]:
        """Everything that is kept, by name."""
        return [self._entries[site] for site in sorted(self._entries)]

    def newest(self, site: str) -> SiteCertificate | None:
        """The certificate of a site that is kept here, if it still counts; it may have expired."""
        entry = self._entries.get(site)
        request = entry.asked() if entry is not None else None
        return site_certifying.standing(self._authority, site, request) if request is not None else None

    def group_key(self, site: str) -> tuple[int, bytes] | None:
        """The newest epoch of a site's group key, and the key; None when the site has not told it to this master."""
        entry = self._entries.get(site)
        if entry is None or entry.group is None or entry.state != "accepted":
            return None
        generation = self._authority.anchor.generation
        known = self._group_keys.get(site)
        if known is None or known[0] != generation or known[1] is not entry.group:
            known = self._group_keys[site] = (generation, entry.group, self._opened(entry.group))
        return known[2]

    def bundle(self, site: str) -> Bundle:
        """All that a site needs which has never seen a master. Raises ``PolicyRefused`` without a certificate."""
        certificate = self.newest(site)
        if certificate is None:
            raise PolicyRefused(
                "this station has no certificate for the site, so there is no bundle",
                error_id="policy.no_certificate",
                found=f"fleet: {'joined' if self._authority.joined else 'none'},"
                f" roles: {', '.join(self._authority.roles()) or 'none'}",
                allowed="a master that the fleet's root list gives the role site-ca",
                hint="outstation fleet show root-lists says which masters these are",
            )
        told = self.tells(site)
        return Bundle(tuple(told.root_lists), certificate.body, tuple(told.revocations))

    # --- TrustBelow: asked and told by the rope --------------------------------------------------------------------

    async def site_welcome(self, site: str) -> None:
        """A site is welcome: renew what it needs renewed."""
        await self._renew(lambda entry: entry.link == site)

    def tells(self, site: str) -> frames.SiteTrust:
        """All that a connected site must know, of itself and of those behind it; empty without a fleet."""
        anchor = self._authority.anchor
        if anchor.root is None:
            return frames.SiteTrust()
        entry = self._entries.get(site)
        behind = (leaf for leaf in self._behind(site) if leaf.certificate and leaf.state == "accepted")
        leaves = [(leaf.site, leaf.certificate) for leaf in behind]
        listed, concerned = self._lists_by_site(), (None, site, *(name for name, _ in leaves))
        return frames.SiteTrust(
            root_lists=list(anchor.root_lists),
            certificate=entry.certificate if entry is not None and entry.state == "accepted" else b"",
            revocations=[body for name in concerned for body in listed.get(name, ())],
            leaves=leaves,
            group_epoch=entry.group.epoch if entry is not None and entry.group is not None else 0,
            time_beacons=self.time_beacons(),
        )

    def _behind(self, link: str) -> list[SiteEntry]:
        """The sites behind a relay, by name: looked up, since each change of one makes every site be told anew."""
        if self._leaves is None:
            self._leaves = {}
            for entry in self.entries():
                if entry.is_leaf:
                    self._leaves.setdefault(entry.link, []).append(entry)
        return self._leaves.get(link, [])

    def _lists_by_site(self) -> dict[str | None, list[bytes]]:
        """The lists of revoked keys that count, by site; those of masters under None."""
        generation = self._authority.anchor.generation
        if self._lists is None or self._lists[0] != generation:
            found: dict[str | None, list[bytes]] = {}
            for body in self._authority.anchor.revocation_lists():
                found.setdefault(_site_of(body), []).append(body)
            self._lists = (generation, found)
        return self._lists[1]

    def speaks_for(self, link: str, site: str) -> bool:
        """Whether this site is the one at the end of the link, or known to be behind it."""
        return site == link or self._registry.link_of(site) == link

    async def told(self, site: str, told: frames.Told) -> None:
        """A site told its group key or its revocations, or asks for one behind it. Raises ``Refused``."""
        if isinstance(told, frames.MasterRevocations):
            await self._take_masters_list(told.body)
            return
        match told:
            case frames.GroupKeys():
                await self._keep_group(site, told)
            case frames.LeafRequest():
                await self._take_request(site, told)
            case frames.SiteRevocations(body=body):
                if _site_of(body) != told.site:
                    raise Refused("wrong_site", f"{told.site} brings the list of {_site_of(body)}")
                await self._authority.install(revocations=[body])
                self.need_link(told.site, site)
                await self._devices_revoked(told.site, read_revocations(body).kids)

    def need_link(self, site: str, link: str) -> None:
        """Tie a site's name to the link that brought its proof, once that was verified. Raises ``Refused``."""
        if site != link and not self._registry.bind(site, link):
            raise Refused("foreign_site", f"{link} speaks for {site}")

    def need_certifier(self, site: str) -> None:
        """Raises ``PolicyRefused`` where this station may not certify sites."""
        site_certifying.need_certifier(self._authority, site)

    # --- used by whoever admits sites ------------------------------------------------------------------------------

    def revoked_sites(self) -> list[str]:
        """Sites that are accepted here, and whose signing key was revoked."""
        return [entry.site for entry in self.entries() if entry.state == "accepted" and self.revoked(entry.identity)]

    def revoked(self, identity: bytes) -> bool:
        """Whether the signing key of a site was revoked by the fleet or by any of its masters."""
        return bool(identity) and self._authority.anchor.device_revoked(kid_of(identity), "")

    def is_news(self, site: str, certificate: bytes) -> bool:
        """Whether this may be a newer certificate of the site than is known here. Raises ``Refused``."""
        known = self.newest(site)
        return known is None or read_site_certificate(certificate).issued > known.issued

    def vouched(self, site: str, request: SiteRequest | None, key: str, certificate: bytes) -> SiteCertificate:
        """A certificate by any master of the fleet that makes this key the site's. Raises ``Refused``."""
        found = self._authority.anchor.take_site_certificate(certificate, self._authority.now())
        if found.site != site:
            raise Refused("wrong_site", f"{site} shows a certificate of {found.site}")
        if found.curve != key_bytes(key) or (request is not None and request.sig != found.sig):
            raise Refused("foreign_certificate", f"{site} shows a certificate for other keys")
        return found

    def draft(
        self,
        site: str,
        link: str,
        *,
        request: bytes | None = None,
        certificate: SiteCertificate | None = None,
        grant: Grant | None = None,
    ) -> SiteEntry:
        """An accepted site as it would be kept, certified where this station may. Nothing has happened yet.

        Without a ``request`` it stays the identity that it is; another identity keeps nothing but the grants of the
        site. Raises ``UsageInvalid`` and ``PolicyRefused`` for a grant that cannot be.
        """
        now = self._clock.wall()
        before = self._entries.get(site)
        entry = replace(before) if before is not None else SiteEntry(site, link, "accepted", first_seen=now)
        entry.link, entry.state, entry.last_seen = link, "accepted", now
        if request is not None:
            identity, entry.request = entry.identity, request
            if entry.identity != identity:
                entry.certificate, entry.group, entry.contender = b"", None, b""
        if certificate is not None and _is_newer(certificate, entry.certificate):
            site_certifying.adopt(entry, certificate)
        site_certifying.apply_grant(self._authority, entry, grant or Grant())
        site_certifying.certify(self._authority, entry)
        return entry

    async def keep(self, entry: SiteEntry, beside: Sequence[Statement] = ()) -> None:
        """Put what is known of a site on disk, together with ``beside``; from then on it counts. ``tell`` it after."""
        await self._writer.commit([entry.put(), *beside])
        self._entries[entry.site], self._leaves = entry, None

    async def tell(self) -> None:
        """There is news for the sites or for the masters."""
        for call in self._calls:
            await call()

    async def keep_certificate(self, site: str, body: bytes) -> None:
        """A certificate from above for a site behind this station. Raises ``Refused``."""
        certificate = self._authority.anchor.take_site_certificate(body, self._authority.now())
        if certificate.site != site:
            raise Refused("wrong_site", f"a certificate of {certificate.site} for {site}")
        async with self.changing:
            entry = self._entries.get(site)
            if entry is None or entry.state != "accepted":
                raise Refused("unknown_site", site)
            if not _is_newer(certificate, entry.certificate):
                return
            fresh = replace(entry)
            site_certifying.adopt(fresh, certificate)
            await self.keep(fresh)
        await self.tell()

    # --- inside ----------------------------------------------------------------------------------------------------

    async def _take_masters_list(self, body: bytes) -> None:
        if _site_of(body) is not None:
            raise Refused("wrong_site", f"the list of {_site_of(body)} in the place of a master's")
        try:
            await self._authority.install(revocations=[body])
        except Refused as refusal:
            # A site that was away for long has an older one.
            if refusal.reason != "rollback":
                raise

    async def _keep_group(self, link: str, group: frames.GroupKeys) -> None:
        certificate = self._authority.anchor.take_site_certificate(group.certificate, self._authority.now())
        check_group_keys(group, certificate)
        self.need_link(group.site, link)
        async with self.changing:
            before = self._entries.get(group.site)
            if before is not None and before.group is not None:
                if before.group == group:
                    return
                _refuse_older(before.group, group, certificate)
            now = self._clock.wall()
            entry = replace(before) if before is not None else SiteEntry(group.site, link, "accepted", first_seen=now)
            if _is_newer(certificate, entry.certificate):
                site_certifying.adopt(entry, certificate)
            entry.group, entry.link, entry.last_seen = group, link, now
            await self.keep(entry)
        await self.tell()

    def _opened(self, group: frames.GroupKeys) -> tuple[int, bytes] | None:
        sealed = dict(group.keys).get(self._authority.signing.kid)
        try:
            kid = read_site_certificate(group.certificate).kid
            self._authority.anchor.site_by_kid(kid, 0.0)
            if sealed is None:
                # Sealed before this master came into the root list: the site seals anew when it hears of it.
                return None
            info = master_info(group.site, kid, group.epoch)
            return group.epoch, hpke.open_sealed(self._authority.kem, info, sealed)
        except Refused as refusal:
            self._metrics.refused("uplink", refusal.reason, group.site, "its group key")
            return None

    def _believe(self, entry: SiteEntry) -> None:
        for body in {entry.certificate, entry.group.certificate if entry.group is not None else b""} - {b""}:
            try:
                self._authority.anchor.take_site_certificate(body, self._authority.now())
            except Refused as refusal:
                log.info("a site's certificate does not count site=%s reason=%s", entry.site, refusal)

    async def _look(self) -> None:
        """What this station believes or may sign has changed: certificates may be due, and everybody has news."""
        try:
            await self._renew(lambda _: True)
        except OutstationError as error:
            log.error("site certificates not renewed, tried again in an hour error=%s", error)
        await self.tell()

    async def _renew(self, concerns: Callable[[SiteEntry], bool]) -> None:
        async with self.changing:
            fresh = [replace(entry) for entry in self._entries.values() if concerns(entry)]
            fresh = [entry for entry in fresh if site_certifying.certify(self._authority, entry)]
            await self._writer.commit([entry.put() for entry in fresh])
            self._entries.update({entry.site: entry for entry in fresh})
            self._leaves = None
        if fresh:
            await self.tell()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._renew(lambda _: True)
            except OutstationError as error:
                log.error("site certificates not renewed, tried again in an hour error=%s", error)


def _refuse_older(known: frames.GroupKeys, group: frames.GroupKeys, certificate: SiteCertificate) -> None:
    """A group key that a relay kept, or a gateway that was replaced, must not come back. Raises ``Refused``."""
    before = read_site_certificate(known.certificate)
    if before.kid == certificate.kid and group.epoch < known.epoch:
        raise Refused("old_epoch", f"{group.epoch} of {group.site}, known is {known.epoch}")
    if before.kid != certificate.kid and certificate.issued <= before.issued:
        raise Refused("old_certificate", f"{group.site} tells a group key with a certificate that was replaced")


def _is_newer(certificate: SiteCertificate, body: bytes) -> bool:
    return not body or certificate.issued > read_site_certificate(body).issued


@lru_cache(maxsize=4096)
def _site_of(body: bytes) -> str | None:
    """Whose list of revoked keys this is; None for a master's."""
    return read_revocations(body).site


async def _nobody(link: str, request: frames.LeafRequest) -> None:
    """Until somebody admits sites behind relays."""


async def _not_a_master(site: str, kids: frozenset[bytes]) -> None:
    """Until somebody keeps a list for the whole fleet."""
