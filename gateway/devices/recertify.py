"""Certificates of devices are renewed before they run out, and after the site's key changed, without anybody's hand.

A device takes its new one over its session; it learns of it when it says hello.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar

from device_agent.errors import OutstationError, Refused
from device_agent.mqtt import NotConnected
from device_agent.parts import Part
from device_agent.protocol.messages import Certificate, encode
from device_agent.trust.device_certificate import read_device_certificate
from gateway.devices.authority import Authority
from gateway.devices.enrolled import Enrolled
from gateway.devices.sessions import Send, Sessions, nowhere
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

TURN = 16
PER_SECOND = 500.0
LIFE_LEFT = 1 / 3
"""A certificate with less than this part of its life left is renewed."""

Renew = Callable[[str], Awaitable[bytes]]
"""Signs a device (its did as text) another certificate, keeps it on disk, and returns it."""


class Recertification(Part):
    """Notices certificates that need another, and brings them."""

    name: ClassVar[str] = "recertify"

    def __init__(self, *, authority: Authority, sessions: Sessions, renew: Renew, metrics: Metrics) -> None:
        self._authority = authority
        self._sessions = sessions
        self._renew = renew
        self._metrics = metrics
        self._waiting: dict[str, bool] = {}
        """Devices to look at, by did; true for those that get a certificate in any case."""
        self._wake = asyncio.Event()
        self._send: Send = nowhere

    async def open(self) -> None:
        """Start bringing."""
        self.spawn(self._run(), "bring")

    def send_with(self, send: Send) -> None:
        """Bring them through this."""
        self._send = send

    def look_at(self, did: str) -> None:
        """The device is here: see, when there is time, whether it needs another certificate."""
        self._waiting.setdefault(did, False)
        self._wake.set()

    def bring(self, did: str) -> None:
        """Bring the device its newest certificate, which it does not have."""
        self._waiting[did] = True
        self._wake.set()

    def _needs_another(self, device: Enrolled) -> bool:
        try:
            certificate = read_device_certificate(device.certificate)
        except Refused:
            # Accepted, and what is kept of it cannot be read.
            return True
        counting = {self._authority.signing.kid, *(master.kid for master in self._authority.anchor.masters)}
        life = certificate.expires - certificate.issued
        return (
            certificate.issuer not in counting
            or certificate.name != device.name
            or self._authority.now() > certificate.expires - life * LIFE_LEFT
        )

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            turn = [did for did, _ in zip(self._waiting, range(TURN), strict=False)]
            wanted = {did: self._waiting.pop(did) for did in turn}
            if not self._waiting:
                self._wake.clear()
            frames = []
            for did in turn:
                try:
                    device = self._sessions.may_open(did)
                except Refused:
                    # Put out since it said hello.
                    continue
                try:
                    if self._needs_another(device):
                        frames += self._sessions.frames([did], encode(Certificate(await self._renew(did))))
                        self._metrics.add("certificates_renewed")
                    elif wanted[did]:
                        frames += self._sessions.frames([did], encode(Certificate(device.certificate)))
                except OutstationError as error:
                    # It is looked at again at the next hello.
                    log.error("certificate not renewed device=%s error=%s", device.name, error)
            try:
                await self._send(frames)
            except NotConnected:
                self._metrics.add("mqtt_not_sent", len(frames))
            # Reading a certificate costs ten times what a frame does, and nobody waits for it.
            await asyncio.sleep(TURN / PER_SECOND)
