"""What a station can be told of its schedule, at the top of its settings as in Salt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import TargetType
from device_agent.protocol.targeting import compile_target
from device_agent.schedule.entries import ENTRIES, GLOBAL, entries
from device_agent.schedule.settings import refuse_wrong
from device_agent.schedule.zones import zone_of

Entries = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=128, pattern="^[^/]+$")], Any],
    Meta(
        max_length=ENTRIES + len(GLOBAL),
        description="what the station runs by itself, as Salt has it; docs/schedules.md",
        examples=[{"nightly": {"function": "test.ping", "target": "*", "cron": "30 4 * * *"}}],
    ),
]
TimeZone = Annotated[
    Annotated[str, Meta(min_length=1, max_length=64)] | None,
    Meta(description="zone of the times in its schedule; default: the machine's own", examples=["Europe/Lisbon"]),
]


def check(schedule: Mapping[str, Any], timezone: str | None) -> None:
    """Raises ``ValueError`` with the entry and the field of what a schedule cannot be, as msgspec says places."""
    refuse_wrong(schedule, timezone, "station")
    for entry in entries(schedule, zone_of(timezone), "station").values():
        place = f"schedule.{entry.name}.target"
        if entry.target_type == "nodegroup" or not entry.target:
            continue
        try:
            kind = msgspec.convert(entry.target_type, TargetType)
        except msgspec.ValidationError as error:
            raise ValueError(f"{place}_type: {error} - at `$.{place}_type`") from None
        try:
            compile_target(entry.target, kind)
        except UsageInvalid as error:
            found = f"found {error.found}, allowed: {error.allowed}"
            raise ValueError(f"{place}: {error.what}; {found} - at `$.{place}`") from None
