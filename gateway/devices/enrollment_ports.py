"""What enrollment needs of the rooms around it, and what it tells them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from device_agent.trust.chain import Anchor
from device_agent.trust.keys import KemKey, SigningKey
from device_agent.trust.site_certificate import SiteCertificate
from gateway.store.writer import Statement


class SiteAuthority(Protocol):
    """What this station is and may sign (``gateway.devices.authority.Authority``)."""

    @property
    def signing(self) -> SigningKey:
        """The key that it signs with."""

    @property
    def kem(self) -> KemKey:
        """The key that others seal to."""

    @property
    def anchor(self) -> Anchor:
        """What it believes."""

    @property
    def certificate(self) -> SiteCertificate | None:
        """Its own certificate; None before it joined its fleet."""

    def may(self, role: str) -> bool:
        """Whether it may sign in this role now."""

    def now(self) -> float:
        """The wall clock, never behind the floor."""


class GroupKey(Protocol):
    """The group key of this site (``gateway.devices.epochs.Epochs``)."""

    @property
    def epoch(self) -> int:
        """The newest epoch."""

    @property
    def key(self) -> bytes:
        """Its key."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where enrolled devices find the broker. ``authority`` is the SHA-256 of its TLS authority's certificate."""

    port: int
    enrollment_port: int
    tls_port: int | None = None
    authority: bytes | None = None
    address: str = ""
    """Where devices reach the enrollment listener, HOST:PORT, when the station knows it; for join tokens."""


class EnrollmentBroker(Protocol):
    """What the broker is told (``gateway.broker.part.BrokerPart``)."""

    async def set_users(self, users: Mapping[str, str]) -> None:
        """These devices may come in and no other: did to password hash."""

    async def set_enrollment(self, is_open: bool) -> None:
        """Let the enrollment user in, or keep it out."""


Respond = Callable[[str, bytes], Awaitable[object]]
"""Publishes an answer to a did."""

PutOut = Callable[[Sequence[str], Sequence[Statement]], Awaitable[object]]
"""Revokes dids, in one transaction with these statements (``gateway.devices.revocation.Revocation.revoke``)."""
