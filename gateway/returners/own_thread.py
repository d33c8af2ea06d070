"""What a returner waits for, in a thread of its own: one that hangs holds up itself, and no thread of the station.

A thread that hangs cannot be ended. It is left to itself, and no second one is begun beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from device_agent.beacons.aside import Aside, Hangs
from gateway.returners.returned import NotReturned

T = TypeVar("T")


class OwnThread:
    """Calls of one returner, one at a time."""

    def __init__(self) -> None:
        self._aside = Aside("returner")

    async def call(self, what: Callable[[], T]) -> T:
        """What it returns or raises. Raises ``NotReturned`` while an earlier one is not over."""
        try:
            return await self._aside.call(what)
        except Hangs:
            raise NotReturned("an earlier attempt hangs still, no other is begun beside it") from None
