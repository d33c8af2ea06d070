"""The settings taken anew, as SIGHUP does, for who may not send a signal to the station."""

from __future__ import annotations

from collections.abc import Callable

from gateway.api.operation import Answer, Asked, Operation


class ReloadApi:
    """One operation."""

    def __init__(self, reload: Callable[[], None]) -> None:
        self._reload = reload

    def operations(self) -> list[Operation]:
        """The table."""
        return [Operation("POST", "/reload", "Take the settings anew, as SIGHUP", self._take, action="station.reload")]

    async def _take(self, _: Asked) -> Answer:
        self._reload()
        return {"reloaded": True}
