"""Who is here, told from time to time as Salt does where ``presence_events`` is on."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from device_agent.parts import Part
from device_agent.protocol import limits, tags
from device_agent.protocol.messages import Event
from device_agent.protocol.stations import devices_alone
from gateway.bus import Bus
from gateway.devices.registry import Registry


class PresencePresent(Part):
    """Fires ``salt/presence/present``. Each station tells of all whom it knows, so that none of it goes up."""

    name: ClassVar[str] = "presence-present"
    drain_seconds: ClassVar[float] = 0.5

    def __init__(self, *, registry: Registry, bus: Bus, enabled: bool, interval: float) -> None:
        self._registry = registry
        self._bus = bus
        self._enabled = enabled
        self._interval = interval

    async def open(self) -> None:
        """Begin, where it is wanted."""
        if self._enabled:
            self.spawn(self._tell(), "tell")

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            names = {device.id for device in devices_alone(self._registry.everything()) if device.present}
            await self._bus.fire(present_events(self._bus, sorted(names)), upward=False)


def present_events(bus: Bus, names: list[str]) -> list[Event]:
    """The event; several, with ``page`` and ``pages`` beside Salt's ``present``, where the names fill more than one."""
    pages = [names[start : start + limits.MANIFEST_PAGE] for start in range(0, len(names), limits.MANIFEST_PAGE)]
    if len(pages) < 2:
        return [bus.event(tags.PRESENCE_PRESENT, {"present": names})]
    return [
        bus.event(tags.PRESENCE_PRESENT, {"present": page, "page": number, "pages": len(pages)})
        for number, page in enumerate(pages, start=1)
    ]
