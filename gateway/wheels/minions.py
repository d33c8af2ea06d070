"""``minions``: who is connected."""

from __future__ import annotations

from device_agent.protocol.stations import devices_alone
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.devices.registry import Registry


class MinionsWheel:
    """The wheel."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def functions(self) -> list[Function]:
        """What it has."""
        return [Function("minions.connected", self.connected, need="view")]

    async def connected(self, _: Running) -> list[str]:
        """List the devices that are connected.

        CLI example: ``outstation wheel minions.connected``
        """
        return sorted({device.id for device in devices_alone(self._registry.everything()) if device.present})
