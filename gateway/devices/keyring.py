"""Who can be sealed to: the group keys and device keys this station knows, its own and those of the sites below."""

from __future__ import annotations

from typing import Protocol

from device_agent.errors import Refused
from device_agent.trust.keys import did_text
from gateway.devices.authority import Authority
from gateway.devices.registry import Registry


class GroupKeys(Protocol):
    """Where group keys are kept."""

    def group_key(self, site: str) -> tuple[int, bytes] | None:
        """The newest epoch of a site's group key, and the key."""


class Keyring:
    """Implements ``gateway.jobs.seal.Keyring`` over what the other rooms know."""

    def __init__(
        self, *, site: str, authority: Authority, registry: Registry, own: GroupKeys, below: GroupKeys
    ) -> None:
        self._site = site
        self._authority = authority
        self._registry = registry
        self._own = own
        self._below = below

    def group_key(self, site: str) -> tuple[int, bytes] | None:
        """The newest epoch of a site's group key, and the key; None when the site has not told it yet."""
        return (self._own if site == self._site else self._below).group_key(site)

    def kem_of(self, site: str, device: str) -> tuple[str, bytes] | None:
        """A device's identity and sealing key, as its certificate says that counts now."""
        known = self._registry.known(site, device)
        if known is None or not known.certificate or known.state != "accepted":
            return None
        try:
            certificate = self._authority.anchor.open_device_certificate(known.certificate, self._authority.now())
        except Refused:
            return None
        if certificate.site != site or certificate.name != device:
            return None
        return did_text(certificate.did), certificate.kem
