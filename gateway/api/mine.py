"""The mine in the API: what one device keeps there and how old it is, and the values of those that a target means."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from device_agent.clock import Clock
from device_agent.errors import NotFound
from device_agent.protocol import mine
from device_agent.protocol.messages import decode_stored
from device_agent.protocol.targeting import compile_target
from gateway.api.operation import Answer, Asked, Operation
from gateway.jobs.nodegroups import TypedKind
from gateway.jobs.permission import Permission
from gateway.mine.book import MineBook
from gateway.mine.reading import MineReading, Value

MOST_BYTES: Final = 16 * 1024 * 1024
"""Values in one answer."""


class MineRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values to read: the functions, or the names that they were given, of the devices that a target means."""

    tgt: str
    tgt_type: TypedKind = "glob"
    delimiter: Annotated[str, Meta(min_length=1, max_length=1)] = ":"
    functions: mine.Names


class MineApi:
    """The operations on values."""

    def __init__(self, *, book: MineBook, reading: MineReading, permission: Permission, clock: Clock) -> None:
        self._book = book
        self._reading = reading
        self._permission = permission
        self._clock = clock

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "GET",
                "/mine/{id}",
                "What a device keeps in the mine, at each site that knows the id",
                self._show,
                query={"site": "only there"},
                needs="run",
            ),
            Operation(
                "POST",
                "/mine",
                "Values of the mine, of the devices that a target means",
                self._get,
                body=MineRequest,
                needs="run",
            ),
        ]

    async def _show(self, asked: Asked) -> Answer:
        device, site = asked.path["id"], asked.query.get("site")
        shelves = [
            shelf
            for shelf in self._book.shelves()
            if shelf.device == device and site in (None, shelf.site) and self._reading.asker(shelf.site, device)
        ]
        if not any(shelf.cells for shelf in shelves):
            raise NotFound(
                f"nothing of {device[:130]!r} is in the mine here",
                error_id="mine.nothing",
                hint=f"outstation run {device[:130]} mine.update   (docs/mine.md says what puts values there)",
            )
        names = sorted({name for shelf in shelves for name in shelf.cells})
        self._permission.reading(asked.operator, device, names, [(shelf.site, device) for shelf in shelves])
        wanted = [(shelf, name) for shelf in shelves for name in shelf.cells]
        values = await self._book.values(wanted, MOST_BYTES)
        found = []
        for shelf, name in sorted(wanted, key=lambda each: (each[0].site, each[1])):
            value, cell = values.get((shelf.site, device, name)), shelf.cells[name]
            if value is not None:
                allow = {"allow_tgt": cell.allow_tgt, "allow_tgt_type": cell.allow_type} if cell.allow_tgt else {}
                found.append({**self._view(Value(shelf.site, device, name, value, cell.kept)), **allow})
        return {"values": found}

    async def _get(self, asked: Asked) -> Answer:
        wanted: MineRequest = asked.body
        tgt, tgt_type = self._reading.signed(wanted.tgt, wanted.tgt_type, wanted.delimiter)
        self._permission.targeting(asked.operator, compile_target(tgt, tgt_type))
        values = await self._reading.read(tgt, tgt_type, wanted.functions, asker=None, sites=True, most=MOST_BYTES)
        self._permission.reading(
            asked.operator, wanted.tgt, wanted.functions, [(value.site, value.device) for value in values]
        )
        return {"values": [self._view(value) for value in values]}

    def _view(self, value: Value) -> dict[str, Any]:
        return {
            "site": value.site,
            "device": value.device,
            "name": value.name,
            "value": decode_stored(value.value),
            "kept": value.kept,
            "age": round(max(0.0, self._clock.wall() - value.kept), 1),
        }
