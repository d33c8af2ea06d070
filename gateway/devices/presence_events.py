"""Events about devices that start, come, go and change, in the shapes of Salt's own where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from device_agent.clock import worded
from device_agent.protocol import limits, tags
from device_agent.protocol.grain_changes import difference
from device_agent.protocol.messages import Event, encode_value
from gateway.bus import Bus
from gateway.devices.device import Device


@dataclass(slots=True)
class News:
    """What happened to devices and is not an event yet. ``reported`` has what each of them said before."""

    started: list[Device] = field(default_factory=list)
    came: list[str] = field(default_factory=list)
    went: list[str] = field(default_factory=list)
    reported: dict[str, tuple[Device, Mapping[str, Any]]] = field(default_factory=dict)

    def reports(self, device: Device, before: Mapping[str, Any]) -> None:
        """A device reports its grains; what it said before its last event is what counts."""
        if before and before != device.grains:
            self.reported.setdefault(device.id, (device, before))


def presence_events(bus: Bus, news: News, *, legacy_starts: bool = True) -> list[Event]:
    """One event for each device that started or changed, and pages of those that came and went.

    ``legacy_starts``: a start is told under Salt's older tag as well, and there first, as Salt does.
    """
    # The shape of Salt's own event: its data is a sentence.
    events = [
        bus.event(
            tag,
            {
                "cmd": "_minion_event",
                "data": f"Minion {device.id} started at {worded(device.last_seen)}",
                "id": device.id,
                "pretag": None,
                "tag": tag,
                "ts": int(device.last_seen),
            },
        )
        for device in news.started
        for tag in ([tags.LEGACY_START] if legacy_starts else []) + [tags.device_start(device.id)]
    ]
    for device, before in news.reported.values():
        changed = difference(before, device.grains)
        if changed:
            events.append(bus.event(tags.device_grains(device.id), {"id": device.id, "changes": _bounded(changed)}))
    # In pages, so that the event of a whole site's return still fits an item.
    for start in range(0, max(len(news.came), len(news.went)), limits.MANIFEST_PAGE):
        page = slice(start, start + limits.MANIFEST_PAGE)
        events.append(bus.event(tags.PRESENCE_CHANGE, {"new": [*news.came[page]], "lost": [*news.went[page]]}))
    return events


def _bounded(changed: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """All that changed by name; without the values where they would be too many."""
    return changed if len(encode_value(changed)) <= limits.EVENT_DATA_BYTES // 2 else {name: {} for name in changed}
