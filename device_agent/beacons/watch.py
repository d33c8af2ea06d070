"""One beacon at work: it looks, what is news is fired, and whatever goes wrong with it stays its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from device_agent.beacons.folding import Folding, Said, data_of
from device_agent.beacons.kinds import Begun
from device_agent.beacons.port import Around, Found
from device_agent.errors import OutstationError, Refused
from device_agent.parts import leaves
from device_agent.protocol import tags

log = logging.getLogger(__name__)

NEWS: Final = 100
"""Events of one look; what is beyond is counted, and told with the next."""

ERROR_CHARACTERS: Final = 1000
CLOSE_SECONDS: Final = 5.0
STATE_RUN: Final = "state."


Count = Callable[[str, str, str], None]
"""Counts a reason, with a detail for the log and the device."""


class Fires(Protocol):
    """Where the events of beacons go."""

    async def __call__(self, tag: str, data: dict[str, Any]) -> None:
        """It is kept, or with the station, when this returns. Raises ``OutstationError`` when it is lost."""


class Watch:
    """One beacon. ``run`` never raises but for being cancelled."""

    def __init__(
        self,
        begun: Begun,
        around: Around,
        *,
        device: Callable[[], str],
        fires: Fires,
        running: Callable[[], list[str]],
        count: Count,
    ) -> None:
        self._name: Final = begun.name
        self._options: Final = begun.options
        self._beacon: Final = begun.beacon
        self._around = around
        self._device = device
        self._fires = fires
        self._running = running
        self._count = count
        self._folding = Folding(begun.options, momentary=begun.beacon.momentary)
        self._errors = Folding(begun.options, momentary=False)
        self._lost = 0

    async def run(self) -> bool:
        """Look on the interval, for ever; with ``run_once`` until a look has gone well, and then ``True``."""
        interval = self._options.interval or self._beacon.interval
        clock = self._around.clock
        try:
            while True:
                # Monotonic: a camera's clock jumps.
                began = clock.monotonic()
                well = await self.turn()
                if well and self._options.run_once:
                    return True
                await asyncio.sleep(max(0.0, interval - (clock.monotonic() - began)))
        finally:
            await self._close()

    async def turn(self) -> bool:
        """One look; whether it went well. What it found that is news is fired."""
        if self._options.disable_during_state_run and self._state_run():
            await self._close()
            return False
        found: list[Found] = []
        error = ""
        try:
            async with asyncio.timeout(self._options.timeout):
                found = await self._beacon.look(self._around)
        except TimeoutError:
            error = f"it did not end within {self._options.timeout:g} s"
        except Exception as raised:  # noqa: BLE001 - whatever a beacon raises is its own error, and is told
            error = "; ".join(_words(leaf) for leaf in leaves(raised))
        now = self._around.clock.monotonic()
        if error:
            self._count("beacon_failed", f"{self._name}: {error}", self._device())
            await self._say(self._errors, self._errors.sieve([_wrong(error)], now))
            return False
        await self._say(self._errors, self._errors.sieve([], now))
        news = self._folding.sieve(found, now)
        for beyond in news[NEWS:]:
            self._folding.unsaid(beyond.found)
        self._lose(len(news[NEWS:]), f"more than {NEWS} at one look")
        await self._say(self._folding, news[:NEWS])
        return True

    def _state_run(self) -> bool:
        # Several functions of one job stand with commas between.
        return any(fun.startswith(STATE_RUN) for title in self._running() for fun in title.split(","))

    async def say_wrong(self, error: str) -> None:
        """Tell that it cannot work at all."""
        await self._say(self._errors, [Said(_wrong(error), 0)])

    async def _say(self, folding: Folding, news: list[Said]) -> None:
        for each in news:
            device = self._device()
            tag, data = data_of(each, device)
            if self._lost:
                data["_lost"] = self._lost
            try:
                await self._fires(f"{tags.BEACON}{device}/{self._name}/{tag}", data)
            except Refused as refusal:
                # No repeat mends it.
                self._lose(1, f"{refusal.reason}: {refusal.detail}")
            except OutstationError as error:
                folding.unsaid(each.found)
                self._lose(1, error.what)
            else:
                self._lost -= data.get("_lost", 0)

    def _lose(self, count: int, why: str) -> None:
        self._lost += count
        for _ in range(count):
            self._count("beacon_event_lost", f"{self._name}: {why}", self._device())

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._beacon.close()
        except Exception as error:  # noqa: BLE001 - it is let go in any case
            log.warning("a beacon did not let go beacon=%s error=%r", self._name, error)


def _wrong(error: str) -> Found:
    shown = error[:ERROR_CHARACTERS]
    return Found({"error": shown}, about="error", same=shown)


def _words(error: BaseException) -> str:
    what = error.what if isinstance(error, OutstationError) else str(error)
    return f"{type(error).__name__}: {what}"
