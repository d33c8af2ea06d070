"""Events that somebody fires: accepted when they are on this station's disk, and answered then."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from device_agent.clock import stamp
from device_agent.protocol import limits
from gateway.api.operation import Answer, Asked, Operation
from gateway.audit.book import AuditBook
from gateway.bus import Bus
from gateway.event_words import check_fired
from gateway.jobs.permission import Permission


class FiredEvent(Struct, frozen=True, forbid_unknown_fields=True):
    """An event that somebody fires: Salt's tag and data."""

    tag: Annotated[str, Meta(min_length=1, max_length=512)]
    data: dict[str, Any] = {}


class FireRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Events that are accepted together, or not at all."""

    events: Annotated[list[FiredEvent], Meta(min_length=1, max_length=limits.EVENTS_AT_ONCE)]


class FireApi:
    """The operation that fires events."""

    def __init__(self, *, bus: Bus, permission: Permission, audit: AuditBook) -> None:
        self._bus = bus
        self._permission = permission
        self._audit = audit

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "POST",
                "/events",
                "Fire events of this station; they are on its disk when this is answered",
                self._fire,
                body=FireRequest,
                status=201,
                needs="run",
                action="fire",
                own_row=True,
            ),
        ]

    async def _fire(self, asked: Asked) -> Answer:
        wanted: FireRequest = asked.body
        calls = [(fired.tag, check_fired(fired.tag, fired.data)) for fired in wanted.events]
        beside = await self._permission.firing(asked.operator, calls)
        events = [self._bus.event(tag, data) for tag, data in calls]
        await self._bus.accept(events, beside)
        self._audit.written()
        return {"events": [{"tag": each.tag, "_stamp": stamp(each.stamp), "site": each.site} for each in events]}
