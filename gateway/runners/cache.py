"""``cache``: what the station keeps of its devices. None of them is asked."""

from __future__ import annotations

import json
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.pillar import as_json
from device_agent.protocol.messages import decode_stored
from device_agent.protocol.stations import meanable
from device_agent.questions import Unanswered
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.devices.device import Device
from gateway.devices.pillar import Pillars
from gateway.devices.registry import Registry
from gateway.jobs.nodegroups import TypedKind
from gateway.jobs.permission import Permission
from gateway.mine.book import MineBook
from gateway.mine.reading import MineReading

MINE_BYTES: Final = 4 * 1024 * 1024
PILLARS: Final = 1000


class CacheRunner:
    """The runner."""

    def __init__(
        self, *, registry: Registry, pillars: Pillars, mine: MineBook, reading: MineReading, permission: Permission
    ) -> None:
        self._registry = registry
        self._pillars = pillars
        self._mine = mine
        self._reading = reading
        self._permission = permission

    def functions(self) -> list[Function]:
        """What it has. Pillar is an admin's, and for who asked alone; the mine is read by the rules of ``mine.get``."""
        return [
            Function("cache.grains", self.grains, need="view"),
            Function("cache.mine", self.mine, ruled=False, looks=True),
            Function("cache.pillar", self.pillar, need="admin", private=True),
        ]

    async def grains(self, running: Running, tgt: str = "*", tgt_type: TypedKind = "glob") -> dict[str, dict[str, Any]]:
        """Show the grains that the station knows of devices.

        CLI example: ``outstation runner cache.grains cam-1``
        """
        return {device.id: dict(device.grains) for device in await self._meant(running, tgt, tgt_type)}

    async def mine(self, running: Running, tgt: str = "*", tgt_type: TypedKind = "glob") -> dict[str, dict[str, Any]]:
        """Show what devices keep in the mine.

        CLI example: ``outstation runner cache.mine 'cam-*'``
        """
        self._permission.targeting(running.operator, self._reading.target(tgt, tgt_type))
        names = sorted({name for shelf in self._mine.shelves() for name in shelf.cells})
        values = await self._reading.read(tgt, tgt_type, names, asker=None, sites=True, most=MINE_BYTES)
        self._permission.reading(running.operator, tgt, names, [(value.site, value.device) for value in values])
        found: dict[str, dict[str, Any]] = {}
        for value in values:
            found.setdefault(value.device, {})[value.name] = decode_stored(value.value)
        return found

    async def pillar(self, running: Running, tgt: str = "*", tgt_type: TypedKind = "glob") -> dict[str, Any]:
        """Show the pillar of devices.

        CLI example: ``outstation runner cache.pillar cam-1``
        """
        found: dict[str, Any] = {}
        for device in (await self._meant(running, tgt, tgt_type))[:PILLARS]:
            try:
                value = (await self._pillars.of(device)).value()
            except (Refused, Unanswered) as error:
                found[device.id] = {"_errors": [str(error)]}
                continue
            # As JSON has it: every name a text.
            found[device.id] = json.loads(json.dumps(as_json(value), default=str))
        return found

    async def _meant(self, running: Running, tgt: str, tgt_type: TypedKind) -> list[Device]:
        target = self._reading.target(tgt, tgt_type)
        self._permission.targeting(running.operator, target)
        await self._registry.know(target)
        known = meanable(self._registry.everything(), target.tgt)
        return [device for device in known if target.matches(device.id, device.grains)]
