"""Returners in the API: what each of them had, what waits, and what is lost."""

from __future__ import annotations

from gateway.api.operation import Answer, Asked, Operation
from gateway.returners.sending import Returners


class ReturnersApi:
    """The operation."""

    def __init__(self, returners: Returners) -> None:
        self._returners = returners

    def operations(self) -> list[Operation]:
        """The table."""
        return [Operation("GET", "/returners", "The returners of this station, and what was lost", self._list)]

    async def _list(self, _: Asked) -> Answer:
        return await self._returners.view()
