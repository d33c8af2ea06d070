"""Engines in the API: how each of them does, and starting one anew."""

from __future__ import annotations

from gateway.api.operation import Answer, Asked, Operation
from gateway.engines.supervisor import Engines


class EnginesApi:
    """The operations."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/engines", "The engines of this station, and how each of them does", self._list),
            Operation(
                "POST",
                "/engines/{name}/restart",
                "End an engine, or the pause after its end, and start it now",
                self._restart,
                action="engines.restart",
            ),
        ]

    async def _list(self, _: Asked) -> Answer:
        return {"engines": self._engines.views()}

    async def _restart(self, asked: Asked) -> Answer:
        return self._engines.restart(asked.path["name"])
