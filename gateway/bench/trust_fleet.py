"""A fleet in memory for ``bench trust``: root holders, two masters, a site, and devices that belong to it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from device_agent.beliefs import Beliefs
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.identity import Identity
from device_agent.trust.chain import Anchor
from device_agent.trust.epochs import GROUP_KEY_BYTES
from device_agent.trust.floor import Floor
from device_agent.trust.keys import KemKey, SigningKey, did_text, new_private
from device_agent.trust.root_list import MasterKey, RootList, sign_root_list
from device_agent.trust.sessions import INSTANCE_BYTES, sign_prekey
from device_agent.trust.site_certificate import SITE_SECONDS, sign_site_certificate

SITE: Final = "bench"
EPOCH: Final = 1
ROOTS, THRESHOLD = 3, 2


@dataclass(frozen=True, slots=True)
class Keys:
    """What one party has: an identity and a key that others seal to."""

    sig: SigningKey
    kem: KemKey

    @property
    def did(self) -> str:
        """The identity as text."""
        return did_text(self.sig.did)


def new_keys() -> Keys:
    """Fresh keys of a party."""
    return Keys(SigningKey(new_private()), KemKey(new_private()))


class Fleet:
    """All that is known before anything is measured."""

    def __init__(self, clock: Clock) -> None:
        self.clock: Final = clock
        self.now: Final = int(clock.wall())
        self.master: Final = new_keys()
        self.site: Final = new_keys()
        roots = [SigningKey(new_private()) for _ in range(ROOTS)]
        masters = [
            MasterKey(f"master-{number}", keys.sig.public, keys.kem.public, secrets.token_bytes(32))
            for number, keys in enumerate((self.master, new_keys()), start=1)
        ]
        draft = RootList(1, self.now, THRESHOLD, tuple(root.public for root in roots), tuple(masters))
        self.root_lists: Final = [sign_root_list(draft, roots[:THRESHOLD])]
        self.pin: Final = draft.fingerprint
        self.site_certificate: Final = sign_site_certificate(
            self.master.sig,
            site=SITE,
            sig=self.site.sig.public,
            kem=self.site.kem.public,
            curve=secrets.token_bytes(32),
            issued=self.now,
            expires=self.now + SITE_SECONDS,
        )
        self.group_key: Final = secrets.token_bytes(GROUP_KEY_BYTES)
        self.prekey: Final = KemKey(new_private())
        self.prekey_body: Final = sign_prekey(
            self.site.sig,
            site=SITE,
            public=self.prekey.public,
            issued=self.now,
            instance=secrets.token_bytes(INSTANCE_BYTES),
        )

    def anchor(self) -> Anchor:
        """What a party believes that was told of the root list and the site."""
        anchor = Anchor(self.pin)
        anchor.take_root_lists(self.root_lists)
        anchor.take_site_certificate(self.site_certificate, self.now)
        return anchor

    def beliefs(self, keys: Keys) -> Beliefs:
        """What a device of the site believes that has a session."""
        identity = Identity(keys.sig, keys.kem, self.anchor(), Floor(self.now))
        identity.site = SITE
        identity.groups.hold(self.site.sig.kid, EPOCH, self.group_key)
        identity.floor.told(self.now, self.clock.monotonic())
        return Beliefs(identity, {}, self.clock, Counters())
