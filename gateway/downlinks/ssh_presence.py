"""Which SSH devices are here: looked at in turns, and told to the registry as an agent would tell it.

A device that an agent speaks for is the agent's. Only when the agent is gone it is here by this link, and again the
agent's when that comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.links import Returns
from device_agent.protocol.messages import Beat, Gone
from gateway.devices.device import Device
from gateway.devices.registry import Registry
from gateway.downlinks.ssh_stead import Stead
from gateway.metrics import Metrics
from gateway.store.writer import StoreFailed

log = logging.getLogger(__name__)

LINK: Final = "ssh"
STALE_POLLS: Final = 2.5
"""Polls in which a device was not reached after which the last one says nothing of it any more."""


class Presence:
    """Tells the registry of the devices of this link."""

    def __init__(self, *, registry: Registry, returns: Returns, metrics: Metrics, clock: Clock) -> None:
        self._registry = registry
        self._returns = returns
        self._metrics = metrics
        self._clock = clock
        self._welcomed: Callable[[str], None] = registry.welcomed

    def by_another(self, stead: Stead) -> Device | None:
        """The device, if it is here by another link or expected back on it."""
        known = self._registry.own_device(stead.name)
        if known is None or known.link == LINK or not (known.present or known.unheard):
            return None
        return known

    async def here(self, stead: Stead) -> None:
        """It was reached, and its grains are what they are."""
        now = stead.reached = self._clock.monotonic()
        if self.by_another(stead) is not None:
            return
        known = self._registry.own_device(stead.name)
        if known is not None and known.present and known.session == stead.session:
            beat = Beat(stead.session, stead.jobs.under_way())
            hello = stead.hello()
            if known.grains == hello.grains:
                self._registry.beat(stead.name, beat)
                return
        else:
            stead.begin()
            stead.jobs.heard_again(now)
        if self._say_hello(stead):
            await self._welcome(stead)

    def busy(self, stead: Stead) -> bool:
        """Whether it is here and at a job: then that says enough of it."""
        if not stead.jobs.under_way() or stead.reached is None:
            return False
        self._registry.beat(stead.name, Beat(stead.session, stead.jobs.under_way()))
        return True

    def take_over(self, stead: Stead) -> bool:
        """Its agent is gone: whether it is known to be reached by this link, and is here by it from now on."""
        if stead.reached is None or self.by_another(stead) is not None:
            return False
        if self._clock.monotonic() - stead.reached > stead.line.device.poll_seconds * STALE_POLLS:
            return False
        stead.begin()
        stead.jobs.heard_again(self._clock.monotonic())
        if not self._say_hello(stead):
            return False
        self._metrics.add("ssh_took_over")
        log.info("its other link is gone, it is reached over ssh device=%s", stead.name)
        return True

    def away(self, stead: Stead, why: str) -> None:
        """It was not reached."""
        stead.reached = None
        known = self._registry.own_device(stead.name)
        if known is None:
            return
        if known.link == LINK or not known.present:
            known.away = why
        if known.present and known.session == stead.session:
            self._registry.gone(stead.name, Gone(stead.session, "lost"))

    def _say_hello(self, stead: Stead) -> bool:
        hello = stead.hello()
        try:
            self._registry.hello(LINK, stead.name, hello)
        except Refused as refused:
            self._metrics.refused(LINK, refused.reason, stead.name, refused.detail)
            return False
        self._returns.hello(stead.name, hello)
        known = self._registry.own_device(stead.name)
        if known is not None:
            known.patience = max(limits.BEAT_SECONDS, stead.line.device.poll_seconds) * limits.SILENT_BEATS
        return True

    async def _welcome(self, stead: Stead) -> None:
        try:
            await self._registry.flush()
        except StoreFailed as error:
            log.error("registry not written, jobs wait device=%s error=%s", stead.name, error.found)
        self._welcomed(stead.name)
