"""What one party believes: from the root keys it pinned to whoever may sign what, judged anew with every change.

An ``Anchor`` takes root lists, certificates of sites and lists of revoked keys from anywhere, as each proves itself,
and answers who may sign. It holds no clock and touches no disk; ``export`` is its whole state as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from device_agent.errors import Refused
from device_agent.trust import codec
from device_agent.trust.device_certificate import DeviceCertificate, read_device_certificate
from device_agent.trust.device_certificate import open_device_certificate as open_certificate
from device_agent.trust.keys import kid as kid_of
from device_agent.trust.policy import SitePolicy
from device_agent.trust.revocations import Revocations, read_revocations
from device_agent.trust.root_list import (
    MasterKey,
    RootList,
    chain_start,
    first_root_list,
    follow,
    next_root_list,
    read_root_list,
)
from device_agent.trust.site_certificate import SiteCertificate, open_site_certificate
from device_agent.trust.standing import Certified, Listed, Standing, judge, newer

SKEW_SECONDS: Final = 120
"""How far two clocks may be apart before something has expired."""

CERTIFICATES_PER_SITE: Final = 16
"""A site has one key and gets a new one now and then; what is older than these is forgotten."""

DEVICES_REMEMBERED: Final = 4096
"""Certificates of devices whose signature need not be checked again."""

STATE_BYTES: Final = 16 * 1024 * 1024
_STATE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Issuer:
    """Somebody who may sign: the key, and for a site the policy within which it may.

    ``certifier`` is what the master may who certified a site: it can grant no more than it has.
    """

    public: bytes
    kind: Literal["master", "site"]
    roles: tuple[str, ...]
    policy: SitePolicy | None
    kid: bytes
    certifier: tuple[str, ...] = ()


class Anchor:
    """Everything one party believes. ``pinned`` is the fingerprint of its root keys; without it the first are taken."""

    def __init__(self, pinned: bytes | None) -> None:
        self.pinned = pinned
        self.root: RootList | None = None
        self.root_lists: list[bytes] = []
        self.generation = 0
        """Counts every change, so that who keeps an answer can see that it may be another one now."""
        self._certified: dict[tuple[str, bytes, bytes], Certified] = {}
        self._listed: dict[bytes, Listed] = {}
        self._devices: dict[bytes, tuple[DeviceCertificate, bytes]] = {}
        self._standing = Standing()
        self._changed = False

    # --------------------------------------------------------------------------------------------------- root lists

    def take_root_lists(self, chain: Sequence[bytes]) -> bool:
        """Go on to the newest list of a chain, oldest first; whether that changed anything. Raises ``Refused``.

        Lists that are known or older than the newest known change nothing: a station that lags behind is no liar.
        """
        if self.root is None:
            root = follow(chain, self.pinned)
            start = chain_start(chain, self.pinned)
            self.pinned = first_root_list(chain[start], self.pinned).fingerprint
            self.root_lists = [*_history(chain, start), *chain[start:]]
        else:
            root, added = self.root, []
            for body in chain:
                if body not in self.root_lists and read_root_list(body).version > self.root.version:
                    root = next_root_list(body, root)
                    added.append(body)
            if not added:
                return False
            self.root_lists.extend(added)
        self.root = root
        self._changed = True
        return self._judge_if_changed()

    @property
    def masters(self) -> tuple[MasterKey, ...]:
        """The masters that count."""
        return tuple(self._standing.masters.values())

    def master_key(self, kid: bytes) -> bytes:
        """The key of a master of the newest root list, whatever its roles. Raises ``Refused``."""
        master = self._standing.masters.get(kid)
        if master is None and kid in self._standing.sites:
            raise Refused("no_role", "a site is no master")
        if master is None:
            raise self._unknown(kid)
        return master.sig

    # -------------------------------------------------------------------------------------------------------- sites

    def take_site_certificate(self, body: bytes, now: float) -> SiteCertificate:
        """A site's certificate by a master that counts; it is kept. Raises ``Refused``."""
        certificate = self._keep_site_certificate(body, now)
        self._judge_if_changed()
        return certificate

    def site_certificate(self, site: str) -> SiteCertificate | None:
        """The newest certificate of a site that counts; it may have expired."""
        return self._standing.newest.get(site)

    def site_certificates(self) -> list[SiteCertificate]:
        """The newest certificate of each site."""
        return list(self._standing.newest.values())

    def site_by_kid(self, kid: bytes, now: float) -> SiteCertificate:
        """The certificate that a kid stands for, if it counts now. Raises ``Refused``."""
        certificates = self._standing.sites.get(kid)
        if not certificates:
            raise self._unknown(kid)
        certificate = max(certificates.values(), key=lambda each: (each.issued, each.body))
        _refuse_expired(certificate, now, 0)
        return certificate

    # ------------------------------------------------------------------------------------------------------ issuers

    def issuer(self, kid: bytes, role: str, site: str, now: float) -> Issuer:
        """Who signs under this kid, if it may sign this for this site now.

        Raises ``Refused`` (``unknown_issuer``, ``issuer_revoked``, ``no_role``, ``issuer_expired``, ``wrong_site``).
        """
        return self._issuer(kid, role, site, now, outlived=False)

    def _issuer(self, kid: bytes, role: str, site: str, now: float, *, outlived: bool) -> Issuer:
        """``outlived`` is for what may outlive the certificate of the site that signed it, within its policy."""
        master = self._standing.masters.get(kid)
        if master is not None:
            _refuse_without(role, master.roles, master.name)
            return Issuer(master.sig, "master", master.roles, None, kid)
        certificates = self._standing.sites.get(kid)
        if not certificates:
            raise self._unknown(kid)
        certificate = certificates.get(site)
        if certificate is None:
            raise Refused("wrong_site", f"{', '.join(certificates)} signs for {site}")
        _refuse_without(role, certificate.roles, site)
        _refuse_expired(certificate, now, certificate.policy.devttl if outlived else 0)
        above = self._standing.masters.get(certificate.issuer)
        granting = above.roles if above is not None else ()
        return Issuer(certificate.sig, "site", certificate.roles, certificate.policy, kid, granting)

    def _unknown(self, kid: bytes) -> Refused:
        """Why nobody who counts has this kid."""
        known = any(kid in {key[1], key[2]} for key in self._certified)
        if kid in self._standing.revoked or known:
            return Refused("issuer_revoked", kid.hex())
        return Refused("unknown_issuer", kid.hex())

    # ------------------------------------------------------------------------------------------------------ devices

    def open_device_certificate(self, body: bytes, now: float) -> DeviceCertificate:
        """A device's certificate that counts now. Raises ``Refused``.

        It counts until it expires, also beyond the certificate of the site that signed it as far as that site's policy
        says, but not when the site or its master counts no more.
        """
        known = self._devices.get(body)
        certificate = read_device_certificate(body) if known is None else known[0]
        issuer = self._issuer(certificate.issuer, "enrol", certificate.site, now, outlived=True)
        if known is None or known[1] != issuer.public:
            open_certificate(body, lambda _kid: issuer.public)
            self._remember(certificate, issuer.public)
        if now > certificate.expires + SKEW_SECONDS:
            raise Refused("expired", f"the certificate of {certificate.name}")
        if self.device_revoked(certificate.kid, certificate.site):
            raise Refused("revoked", certificate.name)
        return certificate

    def device_revoked(self, kid: bytes, site: str | None = None) -> bool:
        """Whether a device is revoked by the root list, a master or its site; without a site, by any site."""
        if kid in self._standing.revoked:
            return True
        by_site = self._standing.revoked_devices
        if site is not None:
            return kid in by_site.get(site, ())
        return any(kid in kids for kids in by_site.values())

    def _remember(self, certificate: DeviceCertificate, public: bytes) -> None:
        if len(self._devices) >= DEVICES_REMEMBERED:
            del self._devices[next(iter(self._devices))]
        self._devices[certificate.body] = (certificate, public)

    # -------------------------------------------------------------------------------------------------- revocations

    def take_revocations(self, body: bytes) -> bool:
        """A list of revoked keys by somebody who may revoke them; whether that changed anything. Raises ``Refused``.

        An expired certificate does not hinder: what a site revoked last is still revoked.
        """
        self._keep_revocations(body)
        return self._judge_if_changed()

    def revocation_lists(self) -> list[bytes]:
        """Every list that counts, as it came."""
        return [listed.body for listed in self._standing.lists]

    def site_version(self, kid: bytes) -> int:
        """The version of the newest list of revoked keys by this signer; 0 without one."""
        known = self._listed.get(kid)
        return 0 if known is None else known.revocations.version

    def _revoker(self, listed: Revocations) -> bytes:
        """The key of a list's signer, if it may revoke and names nobody above it."""
        above = set(self._standing.masters) | ({kid_of(public) for public in self.root.roots} if self.root else set())
        master = self._standing.masters.get(listed.kid)
        if master is not None:
            _refuse_without("revoke", master.roles, master.name)
            if listed.site is not None:
                raise Refused("wrong_site", "a master's list is for no single site")
            public = master.sig
        else:
            certificates = self._standing.sites.get(listed.kid)
            if not certificates:
                raise self._unknown(listed.kid)
            certificate = certificates.get(listed.site or "")
            if certificate is None:
                raise Refused("wrong_site", listed.site or "a site's list names its site")
            _refuse_without("revoke", certificate.roles, certificate.site)
            above |= set(self._standing.sites)
            public = certificate.sig
        if above & listed.kids:
            raise Refused("not_its_to_revoke", next(iter(above & listed.kids)).hex())
        return public

    # -------------------------------------------------------------------------------------------------------- state

    def export(self) -> bytes:
        """Everything that was taken, for a file; what counts no more goes too."""
        certificates = [each.certificate.body for each in self._certified.values()]
        listed = [each.revocations.body for each in self._listed.values()]
        return codec.encode([_STATE_VERSION, self.pinned, self.root_lists, certificates, listed])

    @classmethod
    def restored(cls, state: bytes) -> Anchor:
        """An anchor from its state; every proof is checked again. Raises ``Refused`` for bytes that are no state."""
        parts = codec.decode(state, limit=STATE_BYTES)
        if type(parts) is not list or len(parts) != 5 or parts[0] != _STATE_VERSION:
            raise Refused("malformed", "not the state of an anchor")
        _, pinned, root_lists, certificates, listed = parts
        if not all(_is_bodies(each) for each in (root_lists, certificates, listed)):
            raise Refused("malformed", "the state of an anchor has lists of proofs")
        if pinned is not None and type(pinned) is not bytes:
            raise Refused("malformed", "the state of an anchor has another pin")
        anchor = cls(pinned)
        if root_lists:
            anchor.take_root_lists(root_lists)
        for keep, bodies in ((anchor._keep_site_certificate, certificates), (anchor._keep_revocations, listed)):
            for body in bodies:
                # What counted when it was taken may count no more, as the root list has changed since.
                with suppress(Refused):
                    keep(body)
            anchor._judge_if_changed()
        return anchor

    # --------------------------------------------------------------------------------------------------------------

    def _keep_site_certificate(self, body: bytes, now: float = 0.0) -> SiteCertificate:
        certificate = open_site_certificate(body, self._certifier)
        kid = certificate.kid
        if now > certificate.expires + SKEW_SECONDS:
            raise Refused("expired", f"the certificate of {certificate.site}")
        if kid in self._standing.revoked:
            raise Refused("revoked", f"the key of {certificate.site}")
        self._refuse_doubled(certificate)
        place = (certificate.site, kid, certificate.issuer)
        known = self._certified.get(place)
        if known is None or newer(certificate, known.certificate):
            self._certified[place] = Certified(certificate, self._certifier(certificate.issuer))
            self._forget_oldest(certificate.site)
            self._changed = True
        return certificate

    def _keep_revocations(self, body: bytes) -> None:
        listed = read_revocations(body)
        known = self._listed.get(listed.kid)
        if known is not None and known.revocations.body == body:
            return
        public = self._revoker(listed)
        listed.verify(public)
        if known is not None and listed.version <= known.revocations.version:
            raise Refused("rollback", f"version {listed.version}, known is {known.revocations.version}")
        self._listed[listed.kid] = Listed(listed, public)
        self._changed = True

    def _certifier(self, kid: bytes) -> bytes:
        """The key of a master that certifies sites."""
        master = self._standing.masters.get(kid)
        if master is None and kid in self._standing.sites:
            raise Refused("no_role", "a site certifies no sites")
        if master is None:
            raise self._unknown(kid)
        _refuse_without("site-ca", master.roles, master.name)
        return master.sig

    def _refuse_doubled(self, certificate: SiteCertificate) -> None:
        """Two keys with one kid, or one key in two parts: a lookup would find either."""
        kid, root = certificate.kid, self.root
        above = (*root.roots, *(master.sig for master in root.masters), *root.releases) if root else ()
        doubled = any(kid_of(public) == kid for public in above)
        if doubled or any(
            place[1] == kid and each.certificate.sig != certificate.sig for place, each in self._certified.items()
        ):
            raise Refused("doubled_kid", kid.hex())

    def _forget_oldest(self, site: str) -> None:
        places = [place for place in self._certified if place[0] == site]
        if len(places) > CERTIFICATES_PER_SITE:
            del self._certified[min(places, key=lambda place: self._certified[place].certificate.issued)]

    def _judge_if_changed(self) -> bool:
        changed, self._changed = self._changed, False
        if changed:
            self._standing = judge(self.root, self._certified.values(), self._listed.values())
            self.generation += 1
        return changed


def _history(chain: Sequence[bytes], start: int) -> list[bytes]:
    """The lists before the pinned one that lead to it: others pinned one of those, and will ask for them."""
    first = start
    while first > 0:
        try:
            next_root_list(chain[first], first_root_list(chain[first - 1], None))
        except Refused:
            break
        first -= 1
    return list(chain[first:start])


def _refuse_without(role: str, roles: Sequence[str], who: str) -> None:
    if role not in roles:
        raise Refused("no_role", f"{who} is not allowed to sign as {role}")


def _refuse_expired(certificate: SiteCertificate, now: float, grace: float) -> None:
    if now > certificate.expires + grace + SKEW_SECONDS:
        raise Refused("issuer_expired", f"the certificate of {certificate.site}")


def _is_bodies(value: Any) -> bool:
    return type(value) is list and all(type(body) is bytes for body in value)
