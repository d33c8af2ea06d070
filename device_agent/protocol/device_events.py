"""Events that a device fires, on their way to its station, and what the station answers. Pure.

They go up in pages, as questions (``event.keep``), and the answer is the confirmation: what it names is on the disk of
the station. Sequences rise within an outbox, so the highest one that was taken tells what comes again.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from device_agent.errors import Refused
from device_agent.protocol import limits, tags
from device_agent.protocol.carried import carried
from device_agent.protocol.messages import (
    Outbox,
    Sequence,
    Tag,
    WallSeconds,
    check_finite,
    check_plain,
    decode_bounded,
    encode_value,
)
from device_agent.protocol.questions import ANSWER_BYTES, QUESTION_BYTES

KEEP: Final = "event.keep"

PAGE_EVENTS: Final = 64
PAGE_BYTES: Final = 128 * 1024
"""Most of one page; a single event always fits."""

TAG_CHARACTERS: Final = 512

MINION_EVENT: Final = "_minion_event"
"""Salt's name for what a minion does when it fires."""


class Fired(Struct, frozen=True, array_like=True):
    """One event. ``at`` is when it was fired, as the device believes; order is by sequence.

    ``local`` is what stays at the station of the device: it goes up to nobody.
    """

    sequence: Sequence
    tag: Tag
    data: dict[str, Any]
    at: WallSeconds
    # Last, and not there in what is older: a release that does not know it takes it as one that goes up.
    local: bool = False


class Page(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The oldest events of an outbox. ``lost``: how many of it gave way to newer ones, ever.

    Without an outbox nothing comes twice, and nothing is remembered of it.
    """

    events: Annotated[list[Fired], Meta(max_length=PAGE_EVENTS)]
    outbox: Outbox = b""
    lost: Annotated[int, Meta(ge=0, lt=2**53)] = 0


class Heard(Struct, frozen=True, omit_defaults=True):
    """All up to this sequence are on disk, or were refused for ever; of those, how many and why by reason."""

    through: Sequence
    refused: Annotated[
        dict[Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=1, le=PAGE_EVENTS)]], Meta(max_length=16)
    ] = {}


_encoder = msgspec.msgpack.Encoder()
_page = msgspec.msgpack.Decoder(Page)
_heard = msgspec.msgpack.Decoder(Heard)


def encode(body: Page | Heard) -> bytes:
    """The body of a question or of its answer."""
    return _encoder.encode(body)


def decode_page(body: bytes) -> Page:
    """Raises ``Refused``. What is wrong with one event alone is found by ``check``."""
    page = decode_bounded(_page, body, QUESTION_BYTES)
    before = -1
    for event in page.events:
        if event.sequence <= before:
            raise Refused("event_order", f"{event.sequence} behind {before}")
        before = event.sequence
        check_finite(event.at)
    return page


def decode_heard(body: bytes) -> Heard:
    """Raises ``Refused``."""
    return decode_bounded(_heard, body, ANSWER_BYTES)


def sendable(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event that this device fires as a message can carry it. Raises ``Refused``."""
    try:
        told: dict[str, Any] = carried(data)
    except Refused as refusal:
        raise Refused("event_data", refusal.detail) from None
    return told


def check(device: str, tag: str, data: dict[str, Any]) -> bytes:
    """The data as msgpack. Raises ``Refused`` for what this device may not fire, with the reason it is counted under.

    The device asks this first, so that whoever fires is told; the station asks it again, of everybody.
    """
    if not 1 <= len(tag) <= TAG_CHARACTERS or not tag.isprintable():
        raise Refused("event_tag", f"a tag has 1 to {TAG_CHARACTERS} characters, none of control: {tag[:80]!a}")
    if not tags.may_come_from(device, tag):
        raise Refused("event_own_tag", f"only a station fires {tag[:80]}")
    try:
        check_plain(data)
        body = encode_value(data)
    except Refused as refusal:
        raise Refused("event_data", refusal.detail) from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refused("event_data", str(error)[:200]) from None
    if len(body) > limits.EVENT_DATA_BYTES:
        raise Refused("event_too_large", f"{len(body)} bytes of data, at most {limits.EVENT_DATA_BYTES}")
    return body
