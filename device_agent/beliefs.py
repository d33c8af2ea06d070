"""Whom a device believes, and what it takes from them: root lists, site certificates, revocations, keys, names.

Everything is judged by the device's own time: the floor until its site has told it what time it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.errors import Refused
from device_agent.identity import Identity
from device_agent.trust.chain import SKEW_SECONDS, Issuer
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.epochs import open_epoch
from device_agent.trust.floor import MOVED_SECONDS
from device_agent.trust.notices import Bundle, read_bundle
from device_agent.trust.reach import Custom as CustomReach
from device_agent.trust.reach import no_custom
from device_agent.trust.replay import Replay
from device_agent.trust.revocations import read_revocations
from device_agent.trust.sessions import MARKS, Prekey, SessionOk, open_prekey
from device_agent.trust.signed_job import FUTURE_SECONDS
from device_agent.trust.site_certificate import read_site_certificate
from device_agent.trust.time_beacon import read_time_beacon


class Beliefs:
    """One device's judgement. ``marks`` is what its journal says of job numbers (``Journal.marks``), ``custom_reach``
    the class of a function that its site brought.
    """

    __slots__ = ("_beacon", "_bundle", "_clock", "_counters", "custom_reach", "identity", "replay")

    def __init__(
        self,
        identity: Identity,
        marks: Mapping[bytes, int],
        clock: Clock,
        counters: Counters,
        custom_reach: CustomReach = no_custom,
    ) -> None:
        self.custom_reach = custom_reach
        self.identity = identity
        self.replay = Replay()
        self._beacon = b""
        self._bundle = b""
        self._clock = clock
        self._counters = counters
        for kid, seq in marks.items():
            self.replay.raise_to(kid, seq)

    def now(self) -> float:
        """The time by which everything is judged, in seconds since 1970."""
        return self.identity.floor.now(self._clock.monotonic())

    def marks(self) -> list[tuple[bytes, int]]:
        """The highest job number of each signer, as many as an opening may say."""
        return sorted(self.replay.marks(), key=lambda mark: mark[1], reverse=True)[:MARKS]

    def site_version(self) -> int:
        """The version of our site's own list of revoked keys."""
        certificate = self.identity.anchor.site_certificate(self.identity.site)
        return 0 if certificate is None else self.identity.anchor.site_version(certificate.kid)

    # --- who may sign --------------------------------------------------------------------------------------------

    def issuer(self, kid: bytes, role: str) -> Issuer:
        """A master or our own site, if it may sign this now. Raises ``Refused``."""
        return self.identity.anchor.issuer(kid, role, self.identity.site, self.now())

    def site_key(self, kid: bytes) -> bytes:
        """The key of our own site, which alone has sessions with us. Raises ``Refused``."""
        issuer = self.issuer(kid, "job")
        if issuer.kind != "site":
            raise Refused("unknown_issuer", "a master speaks to devices through jobs alone")
        return issuer.public

    # --- what comes ----------------------------------------------------------------------------------------------

    def take_bundle(self, payload: bytes) -> Prekey:
        """Take what the site's retained message proves, and its prekey. Raises ``Refused`` when that is not proven.

        Any other part that is refused is counted and keeps nothing else out: a station that lags behind is no liar.
        The same bytes are not judged again once everything in them was taken.
        """
        bundle = read_bundle(payload)
        digest = hashlib.sha256(payload).digest()
        if digest != self._bundle:
            self._bundle = digest if self._take_parts(bundle) else b""
        # By the floor: whoever told us a time that is to come must not keep us from being told the right one. An old
        # prekey opens nothing at a station, and nothing is sealed by it before the site has answered.
        now = float(self.identity.floor.value)
        return open_prekey(bundle.prekey, self.site_key, site=self.identity.site, now=now)

    def take_ok(self, word: SessionOk, *, fresh: bool) -> None:
        """The time of a site that answered us. Raises ``Refused`` for one outside the site's own certificate.

        Not ``fresh``: another answer to the same nonce, which may have been recorded. It does not turn time back.
        """
        certificate = self.identity.anchor.site_by_kid(word.kid, self.now())
        if not certificate.issued - FUTURE_SECONDS <= word.issued <= certificate.expires + SKEW_SECONDS:
            raise Refused("wrong_time", f"{word.issued} is outside the certificate of {certificate.site}")
        if fresh or not self.is_past(word):
            self.identity.floor.told(word.issued, self._clock.monotonic())
        self._take_held_beacon()
        if self.identity.index != word.index:
            self.identity.index = word.index
            self.identity.changed = True

    def is_past(self, word: SessionOk) -> bool:
        """Whether what the site says the time is lies behind what it was by its own word."""
        return word.issued < self.now() - SKEW_SECONDS

    def take_time_beacon(self, body: bytes) -> None:
        """A master's word that this time has passed: it raises the floor. Raises ``Refused``.

        One from before the floor is no news, and costs no check of a signature. Until the site has told the time the
        beacon waits: with nothing to compare it with, a master whose clock is ahead would move the floor for good.
        """
        floor, beacon = self.identity.floor, read_time_beacon(body)
        if beacon.issued <= floor.value:
            return
        beacon.verified(self.identity.anchor.master_key)
        if not floor.has_time:
            self._beacon = body
            return
        monotonic = self._clock.monotonic()
        if floor.is_ahead(beacon.issued, monotonic, MOVED_SECONDS):
            raise Refused("issued_in_future", f"a time beacon of {beacon.issued}, now {self.now():.0f}")
        floor.master_signed(beacon.issued, monotonic)

    def _take_held_beacon(self) -> None:
        held, self._beacon = self._beacon, b""
        if held:
            try:
                self.take_time_beacon(held)
            except Refused as refused:
                self._counters.refused(refused.reason, refused.detail, self.identity.name)

    def take_epoch(self, body: bytes) -> None:
        """A newer group key. Raises ``Refused``."""
        identity = self.identity
        opened = open_epoch(
            body, lambda kid: self.issuer(kid, "epoch"), *identity.kems, device=identity.did, site=identity.site
        )
        identity.groups.take(opened, self._clock.monotonic())
        if opened.site_kid is None:
            identity.floor.master_signed(opened.issued, self._clock.monotonic())
        identity.changed = True

    def take_certificate(self, body: bytes) -> bool:
        """A newer certificate of this device; whether it has another name now. Raises ``Refused``."""
        identity = self.identity
        certificate = identity.anchor.open_device_certificate(body, self.now())
        known = (identity.kem.public, identity.sealing.newest.public)
        if certificate.sig != identity.sig.public or certificate.kem not in known:
            identity.sealed_to_another()
            raise Refused("not_for_us", "the certificate holds other keys than ours")
        if certificate.site != identity.site:
            raise Refused("wrong_site", certificate.site)
        if certificate.issued < read_device_certificate(identity.certificate).issued:
            raise Refused("stale_certificate", f"issued at {certificate.issued}")
        if certificate.kem != identity.kem.public:
            identity.sealing.promote(int(self.now()))
        renamed = certificate.name != identity.name
        if body != identity.certificate:
            identity.certificate, identity.name, identity.changed = body, certificate.name, True
        return renamed

    def _take_parts(self, bundle: Bundle) -> bool:
        """Take each part that proves itself; whether all did."""
        identity = self.identity
        before = identity.anchor.generation
        whole = True
        steps: list[tuple[Callable[[Any], None], list[Any]]] = [
            (self._take_root_lists, [bundle.root_lists]),
            (self._take_site_certificate, list(bundle.site_certificates)),
            (self._take_revocations, list(bundle.revocations)),
        ]
        for take, parts in steps:
            for part in parts:
                try:
                    take(part)
                except Refused as refused:
                    whole = False
                    self._counters.refused(refused.reason, refused.detail, identity.name)
        newest = identity.anchor.site_certificate(identity.site)
        started = newest is not None and identity.groups.start(newest.kid)
        if started or identity.anchor.generation != before:
            identity.changed = True
        return whole

    def _take_root_lists(self, chain: list[bytes]) -> None:
        anchor = self.identity.anchor
        anchor.take_root_lists(chain)
        if anchor.root is not None:
            self.identity.floor.root_signed(anchor.root.issued)

    def _take_site_certificate(self, body: bytes) -> None:
        read, floor = read_site_certificate(body), self.identity.floor
        if read.site != self.identity.site:
            raise Refused("wrong_site", read.site)
        if floor.is_ahead(read.issued, self._clock.monotonic()):
            raise Refused("issued_in_future", f"the certificate of {read.site}, at {read.issued}")
        certificate = self.identity.anchor.take_site_certificate(body, self.now())
        floor.master_signed(certificate.issued, self._clock.monotonic())

    def _take_revocations(self, body: bytes) -> None:
        self.identity.anchor.take_revocations(body)
        listed = read_revocations(body)
        if listed.site is None:
            self.identity.floor.master_signed(listed.issued, self._clock.monotonic())
