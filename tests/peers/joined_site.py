"""A site in the hands of a test that joined a real master as it should: its request, its certificate, its group key.

Without these a master seals no job for it.
"""

from __future__ import annotations

import os

from device_agent.clock import Clock
from device_agent.trust import hpke
from device_agent.trust.keys import KemKey, SigningKey, new_private
from device_agent.trust.root_list import read_root_list
from device_agent.trust.site_certificate import read_site_certificate
from device_agent.trust.site_request import sign_site_request
from gateway.devices.epochs import master_info
from gateway.devices.site_entry import sign_group_keys
from tests.peers.rope import PlayedSite, new_keys
from upstream import frames
from upstream.curve import key_bytes

EPOCH = 1


class JoinedSite:
    """Who it is, and the words that make a master speak with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = SigningKey(new_private())
        self.kem = KemKey(new_private())
        self.curve = new_keys()
        self.certificate = b""
        self.root = b""

    def request(self) -> bytes:
        """What it asks its certificate with."""
        return sign_site_request(
            self.key,
            site=self.name,
            kem=self.kem.public,
            curve=key_bytes(self.curve.public),
            nonce=os.urandom(16),
            issued=int(Clock().wall()),
        )

    def take(self, told: frames.SiteTrust) -> None:
        """What the master says of whom to believe; what is empty has not changed."""
        self.certificate = told.certificate or self.certificate
        self.root = told.root_lists[-1] if told.root_lists else self.root

    def group_keys(self, site: str | None = None, key: SigningKey | None = None) -> frames.GroupKeys:
        """Its group key for the masters; of another site, or signed by another key, when the test says so."""
        group_key, kid = os.urandom(32), read_site_certificate(self.certificate).kid
        sealed = [
            (master.kid, hpke.seal(master.kem, master_info(self.name, kid, EPOCH), group_key))
            for master in read_root_list(self.root).masters
        ]
        return sign_group_keys(
            key or self.key, site=site or self.name, certificate=self.certificate, epoch=EPOCH, keys=sealed
        )

    async def begin(self, line: PlayedSite) -> None:
        """Once it is accepted: wait for its certificate, and tell its group key."""
        while not (self.certificate and self.root):
            self.take(await line.hears(frames.SiteTrust))
        await line.say(frames.SiteTells([self.group_keys()]))
