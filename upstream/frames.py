"""Messages on the uplink: typed, bounded msgpack, one ZeroMQ frame each. Pure.

A site speaks ``SiteHello``, ``Batch``, ``DeviceRecords``, ``Echo`` and ``Bye``. A master answers ``SiteWelcome`` or
``SiteRefused``, ``HelloAgain``, ``Confirmed``, ``RecordsConfirmed`` and ``EchoReply``, and sends ``Deliver`` and
``Cancel`` as a device would get them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import (
    Cancel,
    Deliver,
    DeviceId,
    Session,
    SiteId,
    check_finite,
    check_plain,
    decode_bounded,
    decode_value,
)

PROTOCOL = 1
Sequence = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Label = Annotated[str, Meta(max_length=64)]


class SiteHello(Struct, frozen=True, kw_only=True, tag="site_hello"):
    """A site that connected. ``epoch`` names its store: sequences are only comparable within one epoch."""

    protocol: Annotated[int, Meta(ge=1, le=255)]
    site: SiteId
    epoch: Session
    release: Label


class Batch(Struct, frozen=True, tag="batch"):
    """Items of the spool in sequence order. ``after`` is the sequence just before the first of them."""

    epoch: Session
    after: Sequence
    items: Annotated[
        list[tuple[Sequence, Annotated[bytes, Meta(max_length=limits.ITEM_BYTES)]]],
        Meta(min_length=1, max_length=limits.BATCH_ITEMS),
    ]


class DeviceRecord(Struct, frozen=True, kw_only=True):
    """What a site knows of one device; the newest ``revision`` of a device replaces the older ones."""

    id: DeviceId
    site: SiteId
    link: Label
    agent: Label
    grains: Annotated[bytes, Meta(max_length=limits.GRAINS_BYTES)]
    present: bool
    first_seen: float
    last_seen: float
    revision: Sequence


class DeviceRecords(Struct, frozen=True, tag="device_records"):
    """The registry rows that changed after the revision the master last confirmed."""

    epoch: Session
    records: Annotated[list[DeviceRecord], Meta(min_length=1, max_length=limits.REGISTRY_PAGE)]


class Echo(Struct, frozen=True, tag="echo"):
    """Asks the program at the other end, not its TCP stack, whether it works."""

    nonce: Sequence


class Bye(Struct, frozen=True, tag="bye"):
    """The site stops; what it has not sent stays on its disk."""


class SiteWelcome(Struct, frozen=True, tag="site_welcome"):
    """The site is accepted here: where its spool and its registry go on."""

    master: Label
    confirmed: Sequence
    revision: Sequence


class SiteRefused(Struct, frozen=True, tag="site_refused"):
    """The site's key is not accepted here (yet)."""

    state: Literal["pending", "rejected", "denied", "unsupported"]
    reason: Annotated[str, Meta(max_length=512)]


class HelloAgain(Struct, frozen=True, tag="hello_again"):
    """The master does not know this connection (it restarted, or dropped it): connect anew."""


class Confirmed(Struct, frozen=True, tag="confirmed"):
    """Every item up to this sequence is on the master's disk."""

    epoch: Session
    sequence: Sequence


class RecordsConfirmed(Struct, frozen=True, tag="records_confirmed"):
    """Every registry row up to this revision is on the master's disk."""

    revision: Sequence


class EchoReply(Struct, frozen=True, tag="echo_reply"):
    """The answer to ``Echo``, from the loop that also does the work."""

    nonce: Sequence


FromSite = SiteHello | Batch | DeviceRecords | Echo | Bye
FromMaster = SiteWelcome | SiteRefused | HelloAgain | Confirmed | RecordsConfirmed | EchoReply | Deliver | Cancel

_encoder = msgspec.msgpack.Encoder()
_from_site: msgspec.msgpack.Decoder[FromSite] = msgspec.msgpack.Decoder(FromSite)
_from_master: msgspec.msgpack.Decoder[FromMaster] = msgspec.msgpack.Decoder(FromMaster)


def encode(frame: FromSite | FromMaster) -> bytes:
    """A frame as msgpack."""
    return _encoder.encode(frame)


def decode_from_site(body: bytes) -> FromSite:
    """A frame a site sent. Raises ``Refused``."""
    frame = decode_bounded(_from_site, body, limits.UPLINK_FRAME_BYTES)
    if isinstance(frame, Batch):
        previous = frame.after
        for sequence, _ in frame.items:
            if sequence <= previous:
                raise Refused("out_of_order", f"sequence {sequence} does not follow {previous}")
            previous = sequence
    elif isinstance(frame, DeviceRecords):
        for record in frame.records:
            check_finite(record.first_seen, record.last_seen)
            grains = decode_value(record.grains)
            if not isinstance(grains, dict):
                raise Refused("wrong_type", "grains must be a mapping")
            check_plain(grains)
    return frame


def decode_from_master(body: bytes) -> FromMaster:
    """A frame a master sent. Raises ``Refused``."""
    frame = decode_bounded(_from_master, body, limits.UPLINK_FRAME_BYTES)
    if isinstance(frame, Deliver):
        check_finite(frame.remaining)
    return frame
