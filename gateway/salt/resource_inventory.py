"""What a Salt master that has resources (3008) is told of the devices here: their ids by type, and grains.

A type is that of the settings, or for each device the value of a grain. Of the grains, those that are named in the
settings go up, or all; where they are too many, the smallest of them, so that as many as possible are there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from device_agent.protocol.grain_changes import PASSING
from device_agent.protocol.stations import devices_alone
from gateway.devices.device import Device
from upstream.salt.wire import Packed, pack

MOST_DEVICES: Final = 20_000
GRAINS_BYTES: Final = 8 * 1024 * 1024
"""Of the grains of all devices together, packed."""

DEVICE_BYTES: Final = 2048
"""Of one device; each device of a large site has its part of ``GRAINS_BYTES``."""

AT_ONCE: Final = 100
"""Devices between two turns of everybody else."""

TYPE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Registered:
    """One state of the inventory."""

    resources: Mapping[str, Sequence[str]]
    grains: Mapping[str, Packed]
    left_out: int = 0
    """Devices that there is no room for."""
    grains_left_out: int = 0
    """Devices of which not all grains are there that should be."""

    @property
    def count(self) -> int:
        """How many devices."""
        return sum(map(len, self.resources.values()))


NOTHING: Final = Registered({}, {})


@dataclass(frozen=True)
class ResourceRules:
    """What the settings say. ``by``: the grain that names a device's type; ``grains``: which go up, empty for all."""

    kind: str
    by: str = ""
    grains: tuple[str, ...] = ()

    def type_of(self, device: Device) -> str:
        """The type of a device; that of the settings where its grain says nothing that can be one."""
        said = device.grains.get(self.by) if self.by else None
        return said if isinstance(said, str) and TYPE.fullmatch(said) else self.kind

    def types(self, devices: Iterable[Device]) -> dict[str, set[str]]:
        """The ids by type. The stations among the devices are not resources."""
        found: dict[str, set[str]] = {}
        for device in devices_alone(devices):
            found.setdefault(self.type_of(device), set()).add(device.id)
        return found


class Inventory:
    """Makes the inventory anew; what is known of a device whose grains did not change is not made again."""

    def __init__(self, rules: ResourceRules) -> None:
        self._rules = rules
        self._known: dict[tuple[str, str], tuple[Mapping[str, Any], int, Packed, bool]] = {}

    async def registered(self, devices: Iterable[Device]) -> Registered:
        """What there is to say now, own devices first as they come."""
        every = list(devices_alone(devices))
        taken = every[:MOST_DEVICES]
        budget = min(DEVICE_BYTES, GRAINS_BYTES // max(1, len(taken)))
        resources: dict[str, list[str]] = {}
        grains: dict[str, Packed] = {}
        known, short = {}, 0
        for number, device in enumerate(taken):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            key = (device.site, device.id)
            before = self._known.get(key)
            if before is None or before[0] is not device.grains or before[1] != budget:
                before = (device.grains, budget, *self._chosen(device, budget))
            known[key] = before
            kind = self._rules.type_of(device)
            name = f"{kind}:{device.id}"
            if name not in grains:
                resources.setdefault(kind, []).append(device.id)
                grains[name] = before[2]
                short += before[3]
        self._known = known
        ordered = {kind: sorted(ids) for kind, ids in sorted(resources.items())}
        return Registered(ordered, grains, len(every) - len(taken), short)

    def _chosen(self, device: Device, budget: int) -> tuple[Packed, bool]:
        """The grains of a device that go up, packed; and whether there was no room for some."""
        wanted = self._rules.grains or sorted(device.grains.keys() - PASSING)
        packed = [(len(pack(device.grains[name])), name) for name in wanted if name in device.grains]
        chosen, room = {"id": device.id}, budget
        for size, name in sorted(packed):
            room -= size + len(name) + 8
            if room < 0:
                return Packed(pack(chosen)), True
            chosen[name] = device.grains[name]
        return Packed(pack(chosen)), False
