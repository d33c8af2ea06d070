"""The enrollment of a site, in memory: who is a device here. What it decides is what the test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from device_agent.trust.device_certificate import sign_device_certificate
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from tests.peers.fleet import YEAR, PlayedDevice


class Desk:
    """What the rooms around it ask of ``Enrollment``; it outlives a station that is started anew."""

    def __init__(self) -> None:
        self.authority: Authority | None = None
        self.devices: dict[str, Enrolled] = {}
        self.requests: list[bytes] = []
        self.respond: Callable[[str, bytes], Awaitable[object]] | None = None
        self.users_removed: list[str] = []

    def enrol(self, played: PlayedDevice, **changed: Any) -> Enrolled:
        """Let a device in."""
        facts: dict[str, Any] = {
            "did": played.did,
            "state": "accepted",
            "name": played.name,
            "place": len(self.devices),
            "sig": played.key.public,
            "kem": played.kem.public,
            "serial": played.name,
            "model": "dome",
            "certificate": played.certificate,
            "first_seen": 0.0,
            "last_seen": 0.0,
        }
        device = self.devices[played.did] = Enrolled(**{**facts, **changed})
        return device

    def change(self, did: str, **changed: Any) -> None:
        """An operator, or the station, has decided something else about a device."""
        self.devices[did] = replace(self.devices[did], **changed)

    def by_did(self, did: str) -> Enrolled | None:
        return self.devices.get(did)

    def by_name(self, name: str) -> Enrolled | None:
        return next((device for device in self.devices.values() if device.name == name), None)

    def all(self) -> Iterable[Enrolled]:
        return list(self.devices.values())

    def respond_with(self, respond: Callable[[str, bytes], Awaitable[object]]) -> None:
        self.respond = respond

    async def request(self, payload: bytes) -> None:
        self.requests.append(payload)

    async def quarantine(self, did: str, why: str) -> None:
        self.change(did, state="quarantined", detail=why)

    async def revoked_above(self, dids: Sequence[str]) -> None:
        for did in dids:
            self.change(did, state="revoked")

    async def remove_users(self, dids: Sequence[str]) -> None:
        self.users_removed += dids

    async def renew(self, did: str, kem: bytes | None = None) -> bytes:
        assert self.authority is not None
        if kem is not None:
            self.change(did, kem=kem)
        device, now = self.devices[did], int(self.authority.now())
        body = sign_device_certificate(
            self.authority.signing,
            site=self.authority.site,
            sig=device.sig,
            kem=device.kem,
            name=device.name,
            issued=now,
            expires=now + YEAR,
        )
        self.change(did, certificate=body)
        return body
