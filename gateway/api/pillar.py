"""Pillar in the API: that of one device, for those who may administer, and each look at it kept for the audit."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import asdict

from device_agent.errors import Refused, StationFailed
from device_agent.pillar import as_json
from device_agent.protocol.pillar import Environment
from device_agent.questions import Unanswered
from gateway.api.devices import called
from gateway.api.operation import Answer, Asked, Operation
from gateway.devices.device import Device
from gateway.devices.pillar import Pillars
from gateway.devices.registry import Registry

__all__ = ["Environment", "PillarApi"]


class PillarApi:
    """The operation on pillar."""

    def __init__(self, *, pillars: Pillars, registry: Registry) -> None:
        self._pillars = pillars
        self._registry = registry

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "GET",
                "/devices/{id}/pillar",
                "The pillar of one device, and what is wrong with it",
                self._show,
                query={"site": "only there", "env": "of this environment only"},
                needs="admin",
                action="pillar.show",
            )
        ]

    async def _show(self, asked: Asked) -> Answer:
        devices = called(self._registry, asked)
        return {"pillars": [await self._view(device, asked.query.get("env")) for device in devices]}

    async def _view(self, device: Device, env: str | None) -> dict[str, Any]:
        try:
            pillar = await self._pillars.of(device, env)
        except Refused as refused:
            raise StationFailed(
                f"there is no pillar for {device.id}: {refused.reason}",
                error_id=f"pillar.{refused.reason}",
                found=refused.detail,
            ) from None
        except Unanswered as error:
            raise StationFailed(
                f"there is no pillar for {device.id} now: {error.what}", error_id="pillar.unanswered"
            ) from None
        return {
            "id": device.id,
            "site": device.site,
            "source": pillar.source,
            "age": pillar.age,
            # As JSON has it: every name a text.
            "pillar": json.loads(json.dumps(as_json(pillar.value()), default=_text)),
            "problems": [asdict(problem) for problem in pillar.problems],
        }


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
