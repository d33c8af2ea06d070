"""Events that somebody fires: accepted when they are on this station's disk, and answered then."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from device_agent.clock import stamp
from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import limits, tags
from device_agent.protocol.messages import check_plain, encode_value
from gateway.api.operation import Answer, Asked, Operation
from gateway.audit.book import AuditBook
from gateway.bus import Bus
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
        for fired in wanted.events:
            _check(fired)
        calls = [(fired.tag, fired.data) for fired in wanted.events]
        beside = await self._permission.firing(asked.operator, calls)
        events = [self._bus.event(tag, data) for tag, data in calls]
        await self._bus.accept(events, beside)
        self._audit.written()
        return {"events": [{"tag": each.tag, "_stamp": stamp(each.stamp), "site": each.site} for each in events]}


def _check(fired: FiredEvent) -> None:
    """Raises ``UsageInvalid`` for what nobody may fire, whoever he is."""
    if not fired.tag.isprintable():
        raise UsageInvalid(
            "a tag is text without control characters",
            error_id="event.tag",
            where="tag",
            found=ascii(fired.tag[:80]),
            allowed="words with slashes between, as in site/door/opened",
        )
    if tags.is_own(fired.tag):
        raise UsageInvalid(
            "this tag belongs to the station itself, which fires it when it happens",
            error_id="event.own_tag",
            where="tag",
            found=fired.tag[:80],
            allowed=f"any that does not begin with {', '.join(f'{own}/' for own in tags.OWN)}",
        )
    try:
        check_plain(fired.data)
        size = len(encode_value(fired.data))
    except (Refused, ValueError, OverflowError) as error:
        raise UsageInvalid(
            "the data of an event is what JSON can carry", error_id="event.data", where="data", found=str(error)
        ) from None
    if size > limits.EVENT_DATA_BYTES:
        raise UsageInvalid(
            "the data of an event is too large",
            error_id="event.too_large",
            where="data",
            found=f"{size} bytes",
            allowed=f"{limits.EVENT_DATA_BYTES} bytes, encoded as msgpack",
            hint="fire where the data is to be found, and fetch it with a job",
        )
