"""A device's pillar as the device holds it: in memory, from its station in its own session, when it is needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from device_agent.ended import FunctionFailed
from device_agent.errors import Refused
from device_agent.protocol.messages import decode_bounded
from device_agent.protocol.pillar import ITEMS, PillarTold, PillarWanted
from device_agent.questions import NoStation, Station, Unanswered

MASK: Final = "*" * 10
"""What stands for a value that is not to be shown, as in Salt."""

_told: Final = msgspec.msgpack.Decoder(PillarTold)


class HeldPillar:
    """The pillar of one device. What is wrong with it is never said with any of its values."""

    __slots__ = ("_changed", "_held", "_station", "_turn")

    def __init__(self, station: Station | None = None) -> None:
        self._station = station or NoStation()
        self._held: dict[Any, Any] | None = None
        self._changed: list[Callable[[], None]] = []
        self._turn = asyncio.Lock()

    def on_change(self, told: Callable[[], None]) -> None:
        """Call this whenever another pillar than before is in memory."""
        self._changed.append(told)

    @property
    def held(self) -> Mapping[Any, Any]:
        """What is in memory; nothing before it was asked for."""
        return self._held or {}

    async def load(self) -> dict[Any, Any]:
        """What is in memory, asked for the first time now, and once for all who wait. Raises ``FunctionFailed``."""
        async with self._turn:
            return self._held if self._held is not None else await self.refresh()

    async def load_or_none(self) -> Mapping[Any, Any]:
        """What is in memory or can be had; nothing where nobody can be asked."""
        try:
            return await self.load()
        except FunctionFailed:
            return {}

    async def refresh(self) -> dict[Any, Any]:
        """Ask for it, and keep it in memory. Raises ``FunctionFailed``; what was there stays then."""
        before, self._held = self._held, await self.ask()
        if before != self._held:
            for told in self._changed:
                told()
        return self._held

    async def ask(self, env: str | None = None, given: Mapping[str, Any] | None = None) -> dict[Any, Any]:
        """Ask for it and keep nothing. Raises ``FunctionFailed``."""
        try:
            body = msgspec.msgpack.encode(PillarWanted(env, dict(given or {})))
            return decode_bounded(_told, await self._station.ask(ITEMS, body)).value()
        except (Refused, Unanswered) as error:
            raise FunctionFailed(f"the station gives no pillar: {error.what}") from None


def masked(value: Any) -> Any:
    """A value whose texts and numbers are hidden and whose names are shown; what is empty is shown."""
    if isinstance(value, Mapping):
        return {name: masked(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner) for inner in value]
    if isinstance(value, (str, bytes, int, float)) and value:
        return MASK
    return value


def as_json(value: Any) -> Any:
    """A value whose names are texts, as a return can carry it."""
    if isinstance(value, Mapping):
        return {_name(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_json(inner) for inner in value]
    return value


def _name(name: Any) -> str:
    return name if isinstance(name, str) else json.dumps(name, default=str)
