"""What a station tells the one above it of the mine, and asks it: the bodies of those questions. Pure."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from device_agent.protocol import mine
from device_agent.protocol.messages import DeviceId, SiteId, check_finite, decode_bounded
from device_agent.protocol.questions import QUESTION_BYTES

TOLD: Final = "mine.told"
OTHERS: Final = "mine.others"

PAGE_BYTES: Final = 120 * 1024
"""A page is closed before it holds more, unless it is one device alone."""

PAGE_DEVICES: Final = 500

Revision = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Epoch = Annotated[str, Meta(max_length=64)]


class Line(Struct, frozen=True, array_like=True):
    """One value. Without ``value`` it is the one that was told before; ``kept`` is when its device told it."""

    name: mine.Name
    kept: float
    value: mine.Value | None
    allow_tgt: Annotated[str, Meta(max_length=mine.TARGET_CHARACTERS)]
    allow_type: mine.Kind


class DeviceMine(Struct, frozen=True, array_like=True):
    """All that one device has in the mine."""

    site: SiteId
    device: DeviceId
    lines: Annotated[list[Line], Meta(max_length=mine.ENTRIES)]


class Page(Struct, frozen=True):
    """What has changed after one revision of a store, and up to another. An empty one asks where to go on."""

    epoch: Epoch
    after: Revision
    upto: Revision
    devices: Annotated[list[DeviceMine], Meta(max_length=PAGE_DEVICES)] = []


class Position(Struct, frozen=True):
    """Up to this revision everything is on disk above."""

    revision: Revision


class Others(Struct, frozen=True):
    """A device of a site reads what those of other sites have told."""

    site: SiteId
    device: DeviceId
    get: mine.Get


_page = msgspec.msgpack.Decoder(Page)
_position = msgspec.msgpack.Decoder(Position)
_others = msgspec.msgpack.Decoder(Others)
_encoder = msgspec.msgpack.Encoder()


def encode(body: Page | Position | Others) -> bytes:
    """The body of a question or of its answer."""
    return _encoder.encode(body)


def decode_page(body: bytes) -> Page:
    """Raises ``Refused``."""
    page = decode_bounded(_page, body, QUESTION_BYTES)
    check_finite(*(line.kept for device in page.devices for line in device.lines))
    return page


def decode_position(body: bytes) -> Position:
    """Raises ``Refused``."""
    return decode_bounded(_position, body)


def decode_others(body: bytes) -> Others:
    """Raises ``Refused``."""
    return decode_bounded(_others, body, QUESTION_BYTES)
