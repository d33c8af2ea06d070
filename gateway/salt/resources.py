"""Registers the devices here as resources at each Salt master that has such (3008), and says once which has none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from device_agent.clock import Clock
from device_agent.questions import Unanswered
from gateway.devices.device import Device
from gateway.metrics import Metrics
from gateway.salt.resource_inventory import NOTHING, Inventory, Registered, ResourceRules
from upstream.salt.ports import SaltAbove

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 10.0
"""Shortest time between two registrations at a master: what changes meanwhile goes up with the next."""

PAUSE_TIMES: Final = 20.0
PAUSE_CEILING_SECONDS: Final = 600.0
"""A master that takes long for one is left alone for so many times as long, up to this."""


@dataclass
class At:
    """What one master knows."""

    state: str = "waiting"
    """``waiting``, ``registered`` or ``none``: it has no resources."""
    told: Registered | None = None
    """None: what it has is not known."""
    at: float | None = None
    not_before: float = 0.0
    again: asyncio.Event = field(default_factory=asyncio.Event)
    """It may have forgotten."""


class Resources:
    """Implements ``upstream.salt.ports.Registering``. Without ``rules`` it takes back what was registered before.

    ``marks`` is a folder with a file for each master that may have something of ours.
    """

    def __init__(
        self,
        *,
        rules: ResourceRules | None,
        devices: Callable[[], Iterable[Device]],
        revision: Callable[[], int],
        marks: Path,
        metrics: Metrics,
        clock: Clock,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        self._rules = rules
        self._inventory = Inventory(rules) if rules is not None else None
        self._devices = devices
        self._revision = revision
        self._marks = marks
        self._metrics = metrics
        self._clock = clock
        self._pause = pause
        self._at: dict[str, At] = {}

    async def run(self, above: SaltAbove, master: str) -> None:
        """Keep what this master knows as it is here, until cancelled. Raises ``Unanswered`` and ``Refused``."""
        at = self._at.setdefault(master, At())
        at.again.set()
        revision = -1
        while True:
            if at.again.is_set():
                at.again.clear()
                # A master that took it keeps it on its disk; one that lets us in anew may be another.
                at.told, revision = None, -1
            if revision != self._revision():
                revision = self._revision()
                try:
                    await self._settle(at, above, master)
                except OSError as error:
                    # It is told again with the next try, as when the master had not answered.
                    log.error("the mark of a Salt master's resources cannot be kept folder=%s: %s", self._marks, error)
                    raise Unanswered("the mark of its resources cannot be kept", found=str(error)) from error
            if self._inventory is None or at.state == "none":
                # Nothing that could change before it lets us in anew.
                await at.again.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await at.again.wait()

    def signed_in(self, master: str) -> None:
        """It may have forgotten what it was told."""
        if master in self._at:
            self._at[master].again.set()

    def status(self, master: str) -> Mapping[str, Any]:
        """How many devices this master has as resources, since when; nothing while they are not asked for."""
        if self._rules is None:
            return {}
        at = self._at.get(master, At())
        told = at.told or NOTHING
        return {
            "resources": {
                "state": at.state,
                "count": told.count,
                "at": at.at,
                "left_out": told.left_out,
                "grains_left_out": told.grains_left_out,
            }
        }

    async def _settle(self, at: At, above: SaltAbove, master: str) -> None:
        mark = self._marks / quote(master, safe="")
        marked = await asyncio.to_thread(mark.exists)
        if self._inventory is None:
            if marked:
                await above.register({}, {})
                await asyncio.to_thread(mark.unlink, missing_ok=True)
                log.info("the resources of this gateway are taken back master=%s", master)
            return
        if at.told is None and not marked and not await above.register({}, {}):
            # Nothing of ours is there: the empty inventory is a cheap way to ask whether it has such a thing.
            self._without(at, master)
            return
        wanted = await self._inventory.registered(self._devices())
        if wanted == at.told:
            return
        wait = at.not_before - self._clock.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
            wanted = await self._inventory.registered(self._devices())
        await asyncio.to_thread(_touch, mark)
        await self._register(at, above, master, mark, wanted)

    async def _register(self, at: At, above: SaltAbove, master: str, mark: Path, wanted: Registered) -> None:
        began = self._clock.monotonic()
        try:
            taken = await above.register(wanted.resources, wanted.grains)
        finally:
            # Also when it did not answer: it may be at it.
            took = self._clock.monotonic() - began
            at.not_before = began + took + max(self._pause, min(PAUSE_CEILING_SECONDS, PAUSE_TIMES * took))
        if not taken:
            # Another release than when it was marked.
            await asyncio.to_thread(mark.unlink, missing_ok=True)
            self._without(at, master)
            return
        if at.state != "registered" or wanted.left_out:
            log.info("registered as resources master=%s devices=%d left_out=%d", master, wanted.count, wanted.left_out)
        at.state, at.told, at.at = "registered", wanted, self._clock.wall()
        self._metrics.add("salt_registrations")

    def _without(self, at: At, master: str) -> None:
        if at.state != "none":
            log.warning("this Salt master has no resources, it is older than 3008 master=%s", master)
        at.state, at.told, at.at = "none", None, None


def _touch(mark: Path) -> None:
    mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark.touch(mode=0o600)
