"""Events about devices that start, come and go, in the shapes of Salt's own."""

from __future__ import annotations

from collections.abc import Sequence

from device_agent.protocol import limits, tags
from device_agent.protocol.messages import Event
from gateway.bus import Bus
from gateway.devices.device import Device


def presence_events(bus: Bus, started: Sequence[Device], came: Sequence[str], went: Sequence[str]) -> list[Event]:
    """One event for each device that started, and pages of those that came and went."""
    # The shape of Salt's own event: its data is a sentence.
    events = [
        bus.event(
            tags.device_start(device.id),
            {
                "cmd": "_minion_event",
                "data": f"Minion {device.id} started at {device.last_seen:.0f}",
                "id": device.id,
                "pretag": None,
                "tag": tags.device_start(device.id),
            },
        )
        for device in started
    ]
    # In pages, so that the event of a whole site's return still fits an item.
    for start in range(0, max(len(came), len(went)), limits.MANIFEST_PAGE):
        page = slice(start, start + limits.MANIFEST_PAGE)
        events.append(bus.event(tags.PRESENCE_CHANGE, {"new": [*came[page]], "lost": [*went[page]]}))
    return events
