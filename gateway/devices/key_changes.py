"""Devices change the key that others seal to: each says so over its session, signed by its identity.

The station signs the device a certificate for the new key. Masters learn the key from that certificate, as they learned
the first one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.trust.device_certificate import read_device_certificate
from device_agent.trust.key_change import ABOUT, read_key_change
from gateway.answers import Answers
from gateway.devices.allowance import Allowance
from gateway.devices.enrolled import Enrolled
from gateway.devices.sessions import Sessions
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

BURST: Final = 3.0
AGAIN_SECONDS: Final = 3600.0
"""A device changes its key a few times at once, and once in so long after that: each is a row here and at masters."""

REMEMBERED: Final = 4096


class Members(Protocol):
    """Who belongs here (``gateway.devices.enrollment.Enrollment``)."""

    def by_name(self, name: str) -> Enrolled | None:
        """The device that has this name here."""

    def renew(self, did: str, kem: bytes | None = None) -> Awaitable[bytes]:
        """Sign a device another certificate, for this sealing key if it has another one now."""


class KeyChanges:
    """Answers devices that say which key to seal to; ``bring`` sends a device its newest certificate."""

    def __init__(
        self,
        site: str,
        members: Members,
        sessions: Sessions,
        bring: Callable[[str], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._members = members
        self._sessions = sessions
        self._bring = bring
        self._metrics = metrics
        self._clock = clock
        self._allowances: dict[str, Allowance] = {}

    def join(self, answers: Answers) -> None:
        """Answer the devices that ask there."""
        answers.about(ABOUT, self.answer)

    async def answer(self, asker: str, body: bytes) -> bytes:
        """A device says its key. The certificate for it is on disk when this returns. Raises ``Refused``."""
        device = self._members.by_name(asker)
        live = self._sessions.find(device.did) if device is not None else None
        if device is None or live is None:
            raise Refused("unknown_session", asker)
        kem = read_key_change(body, site=self._site).verified(device.sig, live.session.sid)
        if kem != device.kem or not _names(device.certificate, kem):
            self._allow(device.did)
            await self._members.renew(device.did, kem)
            self._metrics.add("sealing_keys_changed")
            log.info("a device has another sealing key device=%s", device.name)
        # Also when nothing changed: it asks because the certificate did not reach it.
        self._bring(device.did)
        return b""

    def _allow(self, did: str) -> None:
        allowance = self._allowances.pop(did, None)
        if allowance is None:
            allowance = Allowance(per_second=1.0 / AGAIN_SECONDS, burst=BURST, clock=self._clock)
        self._allowances[did] = allowance
        if len(self._allowances) > REMEMBERED:
            del self._allowances[next(iter(self._allowances))]
        if not allowance.take():
            raise Refused("too_often", "sealing keys")


def _names(certificate: bytes, kem: bytes) -> bool:
    try:
        return read_device_certificate(certificate).kem == kem
    except Refused:
        return False
