"""Which tags and data an operator or a runner may fire as an event."""

from __future__ import annotations

from typing import Any

from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import limits, tags
from device_agent.protocol.carried import carried
from device_agent.protocol.messages import encode_value

TAG_CHARACTERS = 512


def check_fired(tag: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data as an event carries it. Raises ``UsageInvalid`` for a tag or data that no client may fire."""
    if not tag.isprintable() or not 0 < len(tag) <= TAG_CHARACTERS:
        raise UsageInvalid(
            f"a tag is text of at most {TAG_CHARACTERS} characters, without control characters",
            error_id="event.tag",
            where="tag",
            found=ascii(tag[:80]),
            allowed="words with slashes between, as in site/door/opened",
        )
    if tags.is_own(tag):
        raise UsageInvalid(
            "this tag belongs to the station itself, which fires it when it happens",
            error_id="event.own_tag",
            where="tag",
            found=tag[:80],
            allowed=f"any that does not begin with {', '.join(f'{own}/' for own in tags.OWN)}",
        )
    return check_data(data)


def check_data(data: dict[str, Any]) -> dict[str, Any]:
    """The data as an event carries it. Raises ``UsageInvalid`` for data that no event can have."""
    try:
        told: dict[str, Any] = carried(data)
    except Refused as refused:
        raise UsageInvalid(
            "the data of an event is what JSON can carry", error_id="event.data", where="data", found=refused.detail
        ) from None
    size = len(encode_value(told))
    if size > limits.EVENT_DATA_BYTES:
        raise UsageInvalid(
            "the data of an event is too large",
            error_id="event.too_large",
            where="data",
            found=f"{size} bytes",
            allowed=f"{limits.EVENT_DATA_BYTES} bytes, encoded as msgpack",
            hint="fire where the data is to be found, and fetch it with a job",
        )
    return told
