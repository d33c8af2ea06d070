"""What this station is and may sign: its keys, whom it believes, and what a root list or a certificate says of it.

A master is what the newest root list says of its key, a gateway what its site certificate says. Both change while the
station runs: a published root list, a renewed certificate, a list of revoked keys. What is taken in is verified first,
then believed and put on disk, and then told to whoever asked; after a restart the files are verified again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from device_agent.clock import Clock, iso
from device_agent.errors import ConfigInvalid, Refused, StationFailed, UsageInvalid
from device_agent.parts import Part
from device_agent.trust.chain import Anchor
from device_agent.trust.floor import MASTER_LIMIT_SECONDS, Floor
from device_agent.trust.root_list import MasterKey, RootList, follow, read_root_list
from device_agent.trust.site_certificate import SiteCertificate, read_site_certificate
from device_agent.trust.site_request import NONCE_BYTES, sign_site_request
from gateway.fleet.station_files import Joined, KnownMaster, StationFiles
from upstream.curve import CurveKeys, key_bytes, key_text

log = logging.getLogger(__name__)

FLOOR_SECONDS = 3600.0
"""The time floor goes to disk this often."""

OVERDUE_SECONDS = 5.0
"""How often it is looked whether a certificate that seemed to have expired counts after all."""

Call = Callable[[], Awaitable[None]]


class Authority(Part):
    """The station's keys and standing. The constructor reads the files and raises ``ConfigInvalid`` for bad ones."""

    name: ClassVar[str] = "authority"

    def __init__(
        self, folder: Path, *, role: Literal["master", "gateway"], site: str, curve: CurveKeys, clock: Clock
    ) -> None:
        self.role = role
        self.site = site
        self.curve = curve
        self._clock = clock
        self._files = StationFiles(folder)
        self.signing, self.kem = self._files.keys()
        self._joined = self._files.joined()
        self.anchor = Anchor(self._joined.root if self._joined else None)
        self._floor = Floor(self._files.floor())
        self._signed = 0
        """The time that what counts now was certainly signed after."""
        self._beaconed = 0
        self._unjudged: list[bytes] = []
        self._owed: set[str] = set()
        self._calls: list[Call] = []
        self._installing = asyncio.Lock()
        self._request = b""
        self.lapsed = ""
        """Why the newest certificate does not count, where none counts; empty when one does, or there is none."""
        self._overdue: SiteCertificate | None = None
        """The newest that was genuine and had expired by the clock, which may be wrong: kept until it is set."""
        self._load()

    async def open(self) -> None:
        """Keep the time."""
        self.spawn(self._keep_time(), "floor")
        self.spawn(self._try_overdue(), "overdue")

    def on_change(self, call: Call) -> None:
        """Call whenever what this station believes or may sign has changed."""
        self._calls.append(call)

    # --- asked by everybody ----------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since 1970: the wall clock, but never before what was certainly signed in the past.

        Where the wall clock is behind that, as on a machine that has none, time goes on from what was kept. Otherwise
        what was kept does not count: the clock may have run ahead for a while, and was set right again.
        """
        wall = self._clock.wall()
        return wall if wall >= self._signed else self._floor.now(self._clock.monotonic())

    @property
    def clock_counts(self) -> bool:
        """Whether the clock of this machine may be right: it is not behind what was certainly signed in the past."""
        return self._clock.wall() >= self._signed

    def has_passed(self, seconds: int) -> None:
        """The newest time beacon says that this time has passed; 0 when none counts any more."""
        self._beaconed = seconds
        self._raise_floor()

    @property
    def master(self) -> MasterKey | None:
        """This station's entry in the newest root list; None for a gateway, and for a master that was dropped."""
        return next((master for master in self.anchor.masters if master.sig == self.signing.public), None)

    @property
    def certificate(self) -> SiteCertificate | None:
        """This gateway's newest certificate by a master that counts; it may have expired."""
        try:
            certificate = self.anchor.site_by_kid(self.signing.kid, 0.0)
        except Refused:
            return None
        return certificate if (certificate.site, certificate.sig) == (self.site, self.signing.public) else None

    @property
    def joined(self) -> bool:
        """Whether a fleet says who this station is."""
        return self.master is not None or self.certificate is not None

    def roles(self) -> tuple[str, ...]:
        """What a root list or a certificate allows this station, whether or not it has expired."""
        if self.master is not None:
            return self.master.roles
        return self.certificate.roles if self.certificate is not None else ()

    def check_role(self, role: str) -> None:
        """Whether this station may sign as this now. Raises ``Refused`` and says why not."""
        self.anchor.issuer(self.signing.kid, role, self.site, self.now())

    def may(self, role: str) -> bool:
        """Whether this station may sign as this now."""
        try:
            self.check_role(role)
        except Refused:
            return False
        return True

    def request(self) -> bytes:
        """What a gateway asks its certificate with, the same for the life of the process."""
        if not self._request:
            self._request = sign_site_request(
                self.signing,
                site=self.site,
                kem=self.kem.public,
                curve=key_bytes(self.curve.public),
                nonce=secrets.token_bytes(NONCE_BYTES),
                issued=int(self.now()),
            )
        return self._request

    def masters(self) -> list[KnownMaster]:
        """Where masters listen: those of the join token first, then those of the root list."""
        dropped = self.dropped_masters()
        found = [master for master in self._joined.masters if master.key not in dropped] if self._joined else []
        for master in self.anchor.masters:
            if master.curve:
                found += [KnownMaster(address, key_text(master.curve)) for address in master.addresses]
        return list(dict.fromkeys(found))

    def dropped_masters(self) -> set[str]:
        """CURVE keys that the root list had and has no more: nobody connects there, whoever says where that is."""
        lists = map(read_root_list, self.anchor.root_lists)
        named = {master.curve for root in lists for master in root.masters if master.curve}
        return {key_text(curve) for curve in named - {master.curve for master in self.anchor.masters}}

    def view(self) -> dict[str, Any]:
        """The standing, as the API shows it."""
        root, certificate = self.anchor.root, self.certificate
        shown = certificate or self._overdue
        return {
            "role": self.role,
            "site": self.site,
            "joined": self.joined,
            "root": root.fingerprint.hex() if root else (self.anchor.pinned or b"").hex() or None,
            "root_version": root.version if root else None,
            "root_issued": root.issued if root else None,
            "masters": [master.name for master in self.anchor.masters],
            "roles": list(self.roles()),
            "grants": list(certificate.policy.fun) if certificate else [],
            "origins": {name: list(funs) for name, funs in certificate.policy.org.items()} if certificate else {},
            "certified": shown.issued if shown else None,
            "expires": shown.expires if shown else None,
            "lapsed": self.lapsed or None,
        }

    # --- taken in --------------------------------------------------------------------------------------------------

    async def install(
        self, *, root_lists: Sequence[bytes] = (), certificate: bytes = b"", revocations: Sequence[bytes] = ()
    ) -> bool:
        """Believe these, in this order, and keep them; whether that changed anything.

        Raises ``Refused`` for what proves nothing, and ``StationFailed`` when it is believed but could not be written.
        """
        before = self.anchor.generation
        try:
            async with self._installing:
                try:
                    if root_lists and self._take_root_lists(root_lists):
                        self._owed.add("root-lists")
                    if certificate and self._take_certificate(certificate):
                        self._owed.add("site-certificate")
                    fresh = [body for body in revocations if self.anchor.take_revocations(body)]
                    if self._reconsider() or fresh:
                        self._owed.add("revocations")
                finally:
                    # Also when something after it was refused: what was taken counts.
                    await self._write_owed()
        finally:
            changed = self.anchor.generation != before
            if changed:
                await self._tell()
        return changed

    async def join(self, root: bytes, masters: Sequence[KnownMaster]) -> None:
        """Belong to the fleet of these root keys, and find it at these masters. Raises ``UsageInvalid`` for another."""
        known = {read_root_list(body).fingerprint for body in self.anchor.root_lists}
        if known and root not in known:
            assert self.anchor.root is not None
            raise UsageInvalid(
                "this station belongs to another fleet",
                error_id="join.other_fleet",
                found=f"a token of fleet {root.hex()}",
                allowed=f"one of fleet {self.anchor.root.fingerprint.hex()}",
                hint=f"to leave that fleet for good: stop the station and move {self._files.folder}/root-lists,"
                " site-certificate and masters away",
            )
        earlier = self._joined.masters if self._joined and self._joined.root == root else ()
        joined = Joined(root, tuple(dict.fromkeys([*masters, *earlier])))
        async with self._installing:
            await asyncio.to_thread(self._files.write_joined, joined)
            self._joined = joined
            if not known:
                self.anchor.pinned = root
        await self._tell()

    def reconsider(self) -> None:
        """Sites have become known: judge the lists of revoked keys whose signers were not known before."""
        self._reconsider()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        root_lists = self._files.root_lists()
        try:
            if root_lists:
                self.anchor.take_root_lists(root_lists)
        except Refused as refusal:
            raise ConfigInvalid(
                "the root lists of this station prove nothing",
                where=str(self._files.folder / "root-lists"),
                found=str(refusal),
                allowed="the chain of root lists of the fleet that this station joined",
                hint="restore the file from a backup, or from the folder of the root ceremony",
            ) from None
        certificate = self._files.certificate()
        try:
            if certificate:
                self._take_certificate(certificate)
        except Refused as refusal:
            # A master replaces it; until then this gateway signs nothing.
            self.lapsed = refusal.reason
            log.warning("the site certificate does not count reason=%s detail=%s", refusal.reason, refusal.detail)
        self._unjudged = self._files.revocations()
        self._reconsider()
        self._raise_floor()
        if self.anchor.root is not None and not self.joined:
            log.warning("no root list and no certificate names this station, so it may sign nothing role=%s", self.role)

    def _take_root_lists(self, chain: Sequence[bytes]) -> bool:
        current = self.anchor.root
        if current is not None:
            self._refuse_older(chain[-1], current)
        if current is None and self.role == "master":
            self._need_entry(chain)
        if not self.anchor.take_root_lists(chain):
            return False
        root = self.anchor.root
        assert root is not None
        self._raise_floor()
        log.info("root list version=%d issued=%s fleet=%s", root.version, iso(root.issued), root.fingerprint.hex())
        if current is not None and self.role == "master" and self.master is None:
            log.error("this master is no longer in the root list: whatever it signs, nobody believes it any more")
        return True

    def _refuse_older(self, body: bytes, current: RootList) -> None:
        """A list from before, or one that never was in this fleet's line, is no news. Raises ``Refused``."""
        newest, known = read_root_list(body), self.anchor.root_lists
        if newest.version > current.version or body == known[-1]:
            return
        if body not in known and newest.version >= read_root_list(known[0]).version:
            raise Refused("wrong_root", f"version {newest.version} of fleet {newest.fingerprint.hex()}")
        raise Refused("rollback", f"version {newest.version}, known is {current.version}")

    def _need_entry(self, chain: Sequence[bytes]) -> None:
        """The first list that a master is given says who it is, or it is that of somebody else."""
        root = follow(chain, self.anchor.pinned)
        if all(master.sig != self.signing.public for master in root.masters):
            raise Refused(
                "not_in_root_list", f"masters there: {', '.join(master.name for master in root.masters) or 'none'}"
            )

    def _take_certificate(self, body: bytes) -> bool:
        fresh = read_site_certificate(body)
        if fresh.site != self.site:
            raise Refused("wrong_site", f"a certificate of {fresh.site}, this is {self.site}")
        mine = (self.signing.public, self.kem.public, key_bytes(self.curve.public))
        if (fresh.sig, fresh.kem, fresh.curve) != mine:
            raise Refused("foreign_certificate", f"a certificate of {fresh.site} for other keys than this station has")
        current = self.certificate
        if current is not None and fresh.issued <= current.issued:
            return False
        try:
            self.anchor.take_site_certificate(body, self.now())
        except Refused as refusal:
            if refusal.reason == "expired":
                self._overdue = fresh
                self.lapsed = "" if current else refusal.reason
            raise
        self._raise_floor()
        self.lapsed, self._overdue = "", None
        log.info("site certificate site=%s expires=%s", fresh.site, iso(fresh.expires))
        return True

    def _reconsider(self) -> bool:
        """Take the lists whose signers are known by now; whether there were any."""
        waiting, self._unjudged = self._unjudged, []
        for body in waiting:
            try:
                self.anchor.take_revocations(body)
            except Refused as refusal:
                if refusal.reason == "unknown_issuer":
                    self._unjudged.append(body)
        return len(self._unjudged) != len(waiting)

    async def _write_owed(self) -> None:
        """Put on disk what is believed and not there yet. Raises ``StationFailed``; then it is tried again."""
        files, certificate = self._files, self.certificate
        if "root-lists" in self._owed:
            await asyncio.to_thread(files.write_root_lists, list(self.anchor.root_lists))
        if "site-certificate" in self._owed and certificate is not None:
            await asyncio.to_thread(files.write_certificate, certificate.body)
        if "revocations" in self._owed:
            await asyncio.to_thread(files.write_revocations, [*self.anchor.revocation_lists(), *self._unjudged])
        self._owed.clear()

    def _raise_floor(self) -> None:
        monotonic = self._clock.monotonic()
        passed = self._floor.now(monotonic)
        root, certificate = self.anchor.root, self.certificate
        if root is not None:
            self._floor.root_signed(root.issued)
            self._signed = root.issued
        signed = max(certificate.issued if certificate is not None else 0, self._beaconed)
        if signed and root is not None:
            self._floor.master_signed(signed)
            self._signed = max(root.issued, min(signed, root.issued + MASTER_LIMIT_SECONDS))
        self._floor.told(passed, monotonic)

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(FLOOR_SECONDS)
            passed = self.now()
            if self.anchor.root is not None:
                # A clock that once ran far ahead must not end everything for good.
                passed = min(passed, self.anchor.root.issued + MASTER_LIMIT_SECONDS)
            self._floor.told(passed, self._clock.monotonic())
            try:
                async with self._installing:
                    await self._write_owed()
                await asyncio.to_thread(self._files.write_floor, int(passed))
            except StationFailed as error:
                log.error("trust not kept on disk, tried again in an hour error=%s", error)

    async def _try_overdue(self) -> None:
        """Masters say a certificate once: one that came while the clock was ahead counts when that is set right."""
        while True:
            await asyncio.sleep(OVERDUE_SECONDS)
            overdue = self._overdue
            if overdue is None or self.now() > overdue.expires:
                continue
            try:
                await self.install(certificate=overdue.body)
            except Refused as refusal:
                log.warning("the site certificate does not count reason=%s", refusal.reason)
                self._overdue = None
            except StationFailed as error:
                log.error("the site certificate is not on disk yet error=%s", error)

    async def _tell(self) -> None:
        for call in self._calls:
            await call()
