"""The events of beacons on their way: kept on the device first, or handed over at once where its disk takes nothing.

A device whose own disk is full could else not even say that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Final

from device_agent.clock import Clock
from device_agent.errors import OutstationError
from device_agent.events import Handed
from device_agent.outbox import JournalUnavailable
from device_agent.own import Own
from device_agent.protocol.device_events import check

AT_ONCE_SECONDS: Final = 15.0
"""How long a station may take for an event that is kept nowhere."""


class Lost(OutstationError):
    """An event is kept nowhere."""

    default_id: ClassVar[str] = "beacon.event_lost"


class Sending:
    """Implements ``Fires``."""

    def __init__(self, own: Own, clock: Clock, device: Callable[[], str]) -> None:
        self._events = own.events
        self._device = device
        # Without an outbox: it comes once or not at all, and at worst twice.
        self._at_once = Handed(own.station, clock)

    async def __call__(self, tag: str, data: dict[str, Any]) -> None:
        """It is kept, or with the station. Raises ``Refused`` for what no station takes, ``Lost`` for any other end."""
        device = self._device()
        check(device, tag, data)
        if self._events is None:
            raise Lost("there is no station here to take an event")
        try:
            await self._events.fire(device, tag, data)
        except JournalUnavailable as full:
            try:
                async with asyncio.timeout(AT_ONCE_SECONDS):
                    await self._at_once.fire(device, tag, data)
            except TimeoutError:
                raise Lost(f"{full.what}, and the station does not answer") from None
            except OutstationError as error:
                raise Lost(f"{full.what}, and the station does not take it: {error.what}") from None
        except OutstationError as error:
            raise Lost(error.what) from None
