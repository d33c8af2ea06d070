"""An event as those hear it who are not this program: Salt's data, with the stamp in it that Salt puts there."""

from __future__ import annotations

from typing import Any

from device_agent.clock import stamp
from device_agent.protocol.messages import Event


def salt_data(event: Event) -> dict[str, Any]:
    """The data of an event with its ``_stamp``, whatever the sender put under that name."""
    return {**event.data, "_stamp": stamp(event.stamp)}
