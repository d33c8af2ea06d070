"""Change the key to which others seal for this device, about once a year, over the session with its station.

The station answers with a certificate for the new key. One of a release that does not know the question is asked again
a week later, and the device keeps its key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.guard import Guard
from device_agent.questions import Station
from device_agent.trust.key_change import ABOUT, sign_key_change
from device_agent.trust.sealing_keys import DAY

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0
CERTIFIED_SECONDS: Final = 600.0
"""So long after an answer the certificate may take; then the station is told again."""

REFUSED_SECONDS: Final = 7.0 * DAY
"""A station that refuses the key is asked again after so long."""

Keep = Callable[[], Awaitable[None]]
"""Puts the identity with its sealing keys on flash. Raises ``OSError``."""


class SealingRotation:
    """One device's. ``station`` is asked, ``keep`` writes to flash."""

    def __init__(self, guard: Guard, station: Station, keep: Keep, clock: Clock) -> None:
        self._guard = guard
        self._identity = guard.identity
        self._station = station
        self._keep = keep
        self._clock = clock
        self._not_before = 0.0

    async def run(self, days: int) -> None:
        """Look now and then; ``days`` is the interval, 0 for never."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look(days * DAY)
            except OSError as error:
                self._identity.changed = True
                log.error("the sealing key is not on flash, tried again error=%s", error)

    async def look(self, interval: int) -> None:
        """Do what is due. Raises ``OSError`` when it cannot be written; then nothing was told to the station."""
        identity, monotonic = self._identity, self._clock.monotonic()
        if not self._guard.session or not identity.floor.has_time:
            return
        keys, now = identity.sealing, int(identity.floor.now(monotonic))
        began = not keys.since
        if began:
            keys.since = now
        if keys.let_go(now) or began:
            await self._keep()
        if interval and not keys.pending and keys.is_due(now, interval):
            keys.renew(now)
            log.info("made another sealing key")
        if (keys.pending or keys.told_wrong) and monotonic >= self._not_before:
            # On flash first: from the answer on others seal to it.
            await self._keep()
            await self._tell()

    async def _tell(self) -> None:
        identity = self._identity
        sid = bytes.fromhex(self._guard.session)
        if not sid:
            return
        body = sign_key_change(identity.sig, site=identity.site, sid=sid, kem=identity.sealing.newest.public)
        try:
            await self._station.ask(ABOUT, body)
        except Refused as refused:
            self._not_before = self._clock.monotonic() + REFUSED_SECONDS
            log.warning("the station did not take the sealing key reason=%s", refused)
        except OutstationError as error:
            log.info("the sealing key could not be told, tried again error=%s", error.what)
        else:
            identity.sealing.told_wrong = False
            self._not_before = self._clock.monotonic() + CERTIFIED_SECONDS
