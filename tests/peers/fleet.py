"""A fleet in memory: root holders, masters A and B, a site with its certificate, devices.

Every key is the same in each run, so that a test that fails fails again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from device_agent.trust.chain import Anchor
from device_agent.trust.device_certificate import sign_device_certificate
from device_agent.trust.keys import KemKey, SigningKey, did_text
from device_agent.trust.policy import SitePolicy
from device_agent.trust.revocations import sign_revocations
from device_agent.trust.root_list import MASTER_ROLES, MasterKey, RootList, sign_root_list
from device_agent.trust.site_certificate import SITE_ROLES, SITE_SECONDS, sign_site_certificate
from tests.peers.clock import STARTED_WALL

SITE = "lisbon"
YEAR = 365 * 86_400


def private(name: str) -> bytes:
    """A private key that depends on nothing but a name."""
    return hashlib.sha256(b"a key for tests: " + name.encode()).digest()


def signing_key(name: str) -> SigningKey:
    return SigningKey(private(f"{name} sig"))


def kem_key(name: str) -> KemKey:
    return KemKey(private(f"{name} kem"))


@dataclass(frozen=True)
class Party:
    """A master or a site: its name and its keys. ``curve`` stands for the public key of its uplink."""

    name: str
    key: SigningKey
    kem: KemKey
    curve: bytes

    @property
    def kid(self) -> bytes:
        return self.key.kid

    def as_master(self, roles: Sequence[str] = MASTER_ROLES) -> MasterKey:
        """This party as a root list names it."""
        address = f"tcp://{self.name}.example:4510"
        return MasterKey(self.name, self.key.public, self.kem.public, self.curve, (address,), tuple(roles))


@dataclass(frozen=True)
class PlayedDevice:
    """A device's keys, its name in the site, and its certificate by the site."""

    name: str
    key: SigningKey
    kem: KemKey
    certificate: bytes = field(repr=False)

    @property
    def did(self) -> str:
        """Its identity as text: its topic level and user name."""
        return did_text(self.key.did)

    @property
    def kid(self) -> bytes:
        return self.key.kid


def party(name: str) -> Party:
    return Party(name, signing_key(name), kem_key(name), private(f"{name} curve"))


class Fleet:
    """Three root holders of whom two are needed, two masters that may do everything but ``root-shell``, one site."""

    def __init__(self, site: str = SITE, *, now: float = STARTED_WALL, policy: SitePolicy | None = None) -> None:
        self.now = int(now)
        self.roots = [signing_key(f"root {number}") for number in range(3)]
        self.a = party("master-a")
        self.b = party("master-b")
        self.root = RootList(
            version=1,
            issued=self.now,
            threshold=2,
            roots=tuple(root.public for root in self.roots),
            masters=(self.a.as_master(), self.b.as_master()),
            minimum={"agent": "0.1"},
        )
        self.chain = [sign_root_list(self.root, self.roots[:2])]
        """Every root list, oldest first."""
        self.site = party(site)
        self.site_certificate = self.certify_site(policy=policy or SitePolicy())

    @property
    def fingerprint(self) -> bytes:
        """What a device pins."""
        return self.root.fingerprint

    def anchor(self) -> Anchor:
        """What a party believes that was told of the root lists and the site."""
        anchor = Anchor(self.fingerprint)
        anchor.take_root_lists(self.chain)
        anchor.take_site_certificate(self.site_certificate, self.now)
        return anchor

    def next_root(self, *, keys: Sequence[SigningKey] = (), **changes: Any) -> bytes:
        """The next root list, with these changes, signed by two root holders or by whom the test says."""
        draft = replace(self.root, **{"version": self.root.version + 1, **changes})
        body = sign_root_list(draft, list(keys) or self.roots[:2])
        self.root = draft
        self.chain.append(body)
        return body

    def certify_site(self, site: Party | None = None, *, master: Party | None = None, **changes: Any) -> bytes:
        """A certificate for a site by master A, or by another one, with these changes."""
        holder = site or self.site
        fields: dict[str, Any] = {
            "site": holder.name,
            "sig": holder.key.public,
            "kem": holder.kem.public,
            "curve": holder.curve,
            "issued": self.now,
            "expires": self.now + SITE_SECONDS,
            "roles": SITE_ROLES,
        }
        return sign_site_certificate((master or self.a).key, **{**fields, **changes})

    def revoke(self, issuer: Party, *kids: bytes, version: int = 1, site: str | None = None) -> bytes:
        """A list of revoked keys by a master, or by a site that then names itself."""
        return sign_revocations(issuer.key, version=version, kids=kids, issued=self.now, site=site)

    def device(self, name: str = "cam-1", *, issuer: Party | None = None, **changes: Any) -> PlayedDevice:
        """A device with a certificate by the site, or by another issuer, with these changes."""
        key, kem = signing_key(name), kem_key(name)
        fields: dict[str, Any] = {
            "site": self.site.name,
            "sig": key.public,
            "kem": kem.public,
            "name": name,
            "issued": self.now,
            "expires": self.now + YEAR,
        }
        certificate = sign_device_certificate((issuer or self.site).key, **{**fields, **changes})
        return PlayedDevice(name, key, kem, certificate)
