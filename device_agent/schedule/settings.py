"""A schedule in a file of settings, held against what a schedule can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from device_agent.errors import ConfigInvalid
from device_agent.schedule.entries import Where, entries
from device_agent.schedule.zones import zone_of


def refuse_wrong(schedule: Mapping[str, Any], timezone: str | None, where: Where = "agent") -> None:
    """Raises ``ValueError`` with the entry and its field, and where they stand as msgspec says it, for the line."""
    try:
        entries(schedule, zone_of(timezone), where)
    except ConfigInvalid as error:
        facts = [error.what, f"{error.where}: found {error.found}", f"allowed: {error.allowed}"]
        raise ValueError(f"{'; '.join(facts)} - at `$.{error.where}`") from None
