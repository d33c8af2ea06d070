"""Messages on the uplink: typed, bounded msgpack, one ZeroMQ frame each. Pure.

A site speaks ``SiteHello``, ``SiteRole``, ``Batch``, ``LedgerReport``, ``DeviceRecords``, ``SiteTells``, ``Reseal``,
``Echo`` and ``Bye``. A master answers ``SiteWelcome`` or ``SiteRefused`` (and tells the other ``Twin``),
``HelloAgain``, ``Confirmed``, ``RecordsConfirmed`` and ``EchoReply``, says whom to believe (``SiteTrust``), and sends
``SiteJob`` and ``Cancel``. What both say of a job's story is in ``story_frames``, and of what a site asks in
``device_agent.protocol.questions``.

Proofs travel as the bytes they are; who believes them checks them (``device_agent.trust``), not these frames.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.links import Sealed
from device_agent.protocol.messages import (
    Cancel,
    DeviceId,
    Jid,
    Session,
    SiteId,
    check_finite,
    check_plain,
    decode_bounded,
    decode_value,
)
from device_agent.protocol.questions import Answer, Question
from device_agent.trust.time_beacon import BODY_BYTES
from upstream.fault_frames import FAULTS, SiteFault
from upstream.story_frames import AskJob, Story, StoryTaken, UnknownJob
from upstream.twin_frames import MARKS, Mark, Twin

PROTOCOL = 3

Stream = Literal["urgent", "returns", "state", "events", "audit", "telemetry"]
"""What goes up with numbers of its own. Within one stream order is kept; between two of them it is not."""

STREAMS: tuple[Stream, ...] = get_args(Stream)
"""In the order in which they go up: alarms first, then answers, then the newest state, then history."""

CERTIFICATE_BYTES = 8192
"""Largest certificate, and largest request for one."""

TIME_BEACONS = 64
"""Most masters whose time beacons are passed on."""

Sequence = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Label = Annotated[str, Meta(max_length=64)]
User = Annotated[str, Meta(max_length=128)]
Certificate = Annotated[bytes, Meta(max_length=CERTIFICATE_BYTES)]
Proof = Annotated[bytes, Meta(max_length=limits.MESSAGE_BYTES)]
Beacon = Annotated[bytes, Meta(max_length=BODY_BYTES)]
PROVEN_BYTES = limits.GRAINS_BYTES + CERTIFICATE_BYTES + 4096
"""Largest registry row with its proof."""

Kid = Annotated[bytes, Meta(min_length=8, max_length=8)]


class SiteHello(Struct, frozen=True, kw_only=True, tag="site_hello"):
    """A site that connected. ``epoch`` names its store: sequences are only comparable within one epoch.

    ``request`` is what it asks a site certificate with, ``certificate`` the newest one it has; empty for none.
    ``marks`` are those this store has used with this master (``twins``), ``fresh`` that none of them was welcome yet.
    """

    protocol: Annotated[int, Meta(ge=1, le=255)]
    site: SiteId
    epoch: Session
    release: Label
    request: Certificate = b""
    certificate: Certificate = b""
    marks: Annotated[list[Mark], Meta(max_length=MARKS)] = []
    fresh: bool = False


class Batch(Struct, frozen=True, tag="batch"):
    """Items of one stream of the spool in sequence order.

    ``after`` is the last sequence that was sent on this connection; in the first batch of a stream, where the site goes
    on: what lies between that and the welcome's position was confirmed by another master, or has given way and is
    counted as dropped.
    """

    epoch: Session
    stream: Stream
    after: Sequence
    items: Annotated[
        list[tuple[Sequence, Annotated[bytes, Meta(max_length=limits.ITEM_BYTES)]]],
        Meta(min_length=1, max_length=limits.BATCH_ITEMS),
    ]


class LedgerRow(Struct, frozen=True, kw_only=True):
    """What became of a class of items: accepted = delivered + pending + all of ``dropped``, by reason.

    ``confirmed`` is how many of them the master that is told this has confirmed.
    """

    name: Literal["returns", "events", "audit", "telemetry"]
    accepted: Sequence
    delivered: Sequence
    pending: Sequence
    pending_bytes: Sequence
    dropped: Annotated[dict[Label, Sequence], Meta(max_length=32)] = {}
    confirmed: Sequence = 0


class LedgerReport(Struct, frozen=True, tag="ledger_report"):
    """The site's ledger, so that a master can reconcile it with what it holds."""

    rows: Annotated[list[LedgerRow], Meta(min_length=1, max_length=4)]


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
    certificate: Certificate = b""
    state: Label = ""
    """Its standing at its site (accepted, revoked, …); empty for a device that was never enrolled."""
    accepted_by: User = ""
    accepted_at: float = 0.0
    proven: Annotated[bytes, Meta(max_length=PROVEN_BYTES)] = b""
    """This row as its own site said it, with the site's proof; empty without one (``device_agent.protocol.proven``)."""


class DeviceRecords(Struct, frozen=True, tag="device_records"):
    """The registry rows that changed after the revision the master last confirmed."""

    epoch: Session
    records: Annotated[list[DeviceRecord], Meta(min_length=1, max_length=limits.REGISTRY_PAGE)]


class GroupKeys(Struct, frozen=True, kw_only=True, tag="group_keys"):
    """The newest group key of a site, sealed to each master by its kid; of this site, or of one behind it.

    ``signature`` is by the site's key over all the rest, so that a relay cannot put a key of its own in its place.
    """

    site: SiteId
    certificate: Certificate
    epoch: Annotated[int, Meta(ge=1, lt=2**32)]
    keys: Annotated[
        list[tuple[Kid, Annotated[bytes, Meta(max_length=1024)]]],
        Meta(max_length=64),
    ]
    signature: Annotated[bytes, Meta(max_length=64)] = b""


class LeafRequest(Struct, frozen=True, tag="leaf_request"):
    """A site behind this one, accepted here, asks for its certificate; ``certificate`` is the newest one it has."""

    site: SiteId
    request: Certificate
    certificate: Certificate = b""


class SiteRevocations(Struct, frozen=True, tag="site_revocations"):
    """The list of devices that a site has revoked, as it signed it; of this site, or of one behind it."""

    site: SiteId
    body: Proof


class MasterRevocations(Struct, frozen=True, tag="master_revocations"):
    """The list of keys that a master has revoked, as the site was told it: masters hear of each other's this way."""

    signer: Kid
    body: Proof


Told = GroupKeys | LeafRequest | SiteRevocations | MasterRevocations


class SiteTells(Struct, frozen=True, tag="site_tells"):
    """What of the above is new or has changed since this connection began."""

    entries: Annotated[list[Told], Meta(min_length=1, max_length=4 * (limits.LEAF_SITES + 1))]


class Reseal(Struct, frozen=True, tag="reseal"):
    """A job cannot be opened as it was sealed for this site, or for one behind it: seal it anew."""

    jid: Jid
    site: SiteId
    reason: Label


class Echo(Struct, frozen=True, tag="echo"):
    """Asks the program at the other end, not its TCP stack, whether it works."""

    nonce: Sequence


class SiteRole(Struct, frozen=True, tag="site_role"):
    """Whether this master gets the site's spool (active) or stands by; either may order. Said again when it changes.

    ``faults`` are what keeps the site from taking jobs now.
    """

    active: bool
    faults: Annotated[list[SiteFault], Meta(max_length=FAULTS)] = []


class Bye(Struct, frozen=True, tag="bye"):
    """The site stops; what it has not sent stays on its disk."""


class SiteWelcome(Struct, frozen=True, tag="site_welcome"):
    """The site is accepted here: where its spool and its registry go on."""

    master: Label
    positions: Annotated[dict[Stream, Sequence], Meta(max_length=len(STREAMS))]
    """The last sequence on disk here, of each stream; what is not in it starts at 0."""
    revision: Sequence
    renew: bool = False
    """Whether it shares its epoch with another and has to take a new one."""
    proofs: bool = False
    """Whether this station passes on what the site says: the site then signs it."""
    rows_unproven: bool = False
    """Whether there are registry rows of the site here that it did not sign: it then tells every row again."""


class SiteRefused(Struct, frozen=True, tag="site_refused"):
    """The site's key is not accepted here (yet).

    ``revocations`` go with a key that was turned away: it may be among them, and who is at its site must hear of it.
    """

    state: Literal["pending", "rejected", "denied", "unsupported", "fenced"]
    reason: Annotated[str, Meta(max_length=512)]
    revocations: Annotated[list[Proof], Meta(max_length=2048)] = []
    mark: Annotated[bytes, Meta(max_length=16)] = b""
    """With ``fenced``: the mark of whom was welcome last."""


class HelloAgain(Struct, frozen=True, tag="hello_again"):
    """The master does not know this connection (it restarted, or dropped it): connect anew."""


class Confirmed(Struct, frozen=True, tag="confirmed"):
    """Every item of a stream up to this sequence is on the master's disk."""

    epoch: Session
    stream: Stream
    sequence: Sequence


class RecordsConfirmed(Struct, frozen=True, tag="records_confirmed"):
    """Every registry row up to this revision is on the master's disk."""

    revision: Sequence


class SiteTrust(Struct, frozen=True, kw_only=True, tag="site_trust"):
    """Whom to believe: the root lists, oldest first, what was revoked, and the site's own certificate.

    ``leaves`` are the certificates of sites behind it. ``group_epoch`` is the newest epoch of the site's group key that
    is known here. ``time_beacons`` are the newest of each master, at most one of each. What is empty has not changed
    since it was last told; a site of a release that knows no time beacons passes over them.
    """

    root_lists: Annotated[list[Proof], Meta(max_length=1024)] = []
    certificate: Certificate = b""
    revocations: Annotated[list[Proof], Meta(max_length=2048)] = []
    leaves: Annotated[list[tuple[SiteId, Certificate]], Meta(max_length=limits.LEAF_SITES)] = []
    group_epoch: Annotated[int, Meta(ge=0, lt=2**32)] = 0
    time_beacons: Annotated[list[Beacon], Meta(max_length=TIME_BEACONS)] = []


class SiteJob(Struct, frozen=True, tag="site_job"):
    """A job on its way: its definition for stations, and what devices believe. ``remaining`` is seconds to its expiry.

    One job may come in several of these, each with some of what is sealed.
    """

    job: Proof
    remaining: float
    sealed: Annotated[list[Sealed], Meta(max_length=limits.DEVICES_PER_STATION)] = []


class EchoReply(Struct, frozen=True, tag="echo_reply"):
    """The answer to ``Echo``, from the loop that also does the work."""

    nonce: Sequence


FromSite = (
    SiteHello
    | Batch
    | LedgerReport
    | DeviceRecords
    | SiteTells
    | Reseal
    | SiteRole
    | Story
    | UnknownJob
    | Question
    | Echo
    | Bye
)
FromMaster = (
    SiteWelcome
    | SiteRefused
    | Twin
    | HelloAgain
    | Confirmed
    | RecordsConfirmed
    | EchoReply
    | SiteTrust
    | SiteJob
    | Cancel
    | AskJob
    | StoryTaken
    | Answer
)

_encoder = msgspec.msgpack.Encoder()
_from_site: msgspec.msgpack.Decoder[FromSite] = msgspec.msgpack.Decoder(FromSite)
_record: msgspec.msgpack.Decoder[DeviceRecord] = msgspec.msgpack.Decoder(DeviceRecord)
_group_keys: msgspec.msgpack.Decoder[GroupKeys] = msgspec.msgpack.Decoder(GroupKeys)
_from_master: msgspec.msgpack.Decoder[FromMaster] = msgspec.msgpack.Decoder(FromMaster)


def encode(frame: FromSite | FromMaster | GroupKeys) -> bytes:
    """A frame as msgpack."""
    return _encoder.encode(frame)


def encode_told(entry: Told) -> bytes:
    """One entry of what a site tells, as msgpack."""
    return _encoder.encode(entry)


def encode_record(record: DeviceRecord) -> bytes:
    """A registry row as the bytes that its site signs."""
    return _encoder.encode(record)


def decode_record(body: bytes) -> DeviceRecord:
    """A registry row that its site signed. Raises ``Refused``."""
    record = decode_bounded(_record, body, PROVEN_BYTES)
    _check_record(record)
    return record


def decode_group_keys(body: bytes) -> GroupKeys:
    """A frame that a station kept. Raises ``Refused``."""
    return decode_bounded(_group_keys, body, limits.UPLINK_FRAME_BYTES)


def decode_from_site(body: bytes) -> FromSite:
    """A frame a site sent. Raises ``Refused``."""
    frame = decode_bounded(_from_site, body, limits.UPLINK_FRAME_BYTES)
    if isinstance(frame, Batch):
        previous = frame.after
        for sequence, _ in frame.items:
            if sequence <= previous:
                raise Refused("out_of_order", f"sequence {sequence} does not follow {previous}")
            previous = sequence
    elif isinstance(frame, SiteRole):
        check_finite(*(fault.since for fault in frame.faults))
    elif isinstance(frame, DeviceRecords):
        for record in frame.records:
            _check_record(record)
    return frame


def decode_from_master(body: bytes) -> FromMaster:
    """A frame a master sent. Raises ``Refused``."""
    frame = decode_bounded(_from_master, body, limits.UPLINK_FRAME_BYTES)
    if isinstance(frame, SiteJob):
        check_finite(frame.remaining)
    return frame


def _check_record(record: DeviceRecord) -> None:
    check_finite(record.first_seen, record.last_seen, record.accepted_at)
    grains = decode_value(record.grains)
    if not isinstance(grains, dict):
        raise Refused("wrong_type", "grains must be a mapping")
    check_plain(grains)
