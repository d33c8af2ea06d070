"""Messages between stations and devices, and the items a station sends up: typed, bounded, msgpack.

``decode_*`` returns a message or raises ``Refused`` with a reason to count; no bytes make it raise anything else.
``Job`` is how stations speak of a job among themselves, and what a device makes of one that it has opened. On its way
to devices it is a proof (``trust.signed_job``), carried as the bytes that its issuer signed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.folders import Folders
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.questions import Answer, Question

# `$` also matches before a final newline; the look-ahead refuses that and stays legal in JSON Schema.
JID_PATTERN = r"^[0-9]{20}$(?!\n)"
DEVICE_ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,127}$(?!\n)"
SITE_ID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$(?!\n)"
ORIGIN_PATTERN = r"^[a-z][a-z0-9-]{0,31}$(?!\n)"
ORIGIN_OR_NONE = r"^(?:[a-z][a-z0-9-]{0,31})?$(?!\n)"
FUNCTION_PATTERN = r"^[a-z_][a-z0-9_]{0,63}\.[a-z_][a-z0-9_]{0,63}$(?!\n)"

Jid = Annotated[str, Meta(pattern=JID_PATTERN, description="Salt's job id: 20 digits, ordered by time")]
DeviceId = Annotated[str, Meta(pattern=DEVICE_ID_PATTERN, description="a device's id, which targets match")]
SiteId = Annotated[str, Meta(pattern=SITE_ID_PATTERN, description="a site's name")]
FunctionName = Annotated[str, Meta(pattern=FUNCTION_PATTERN, description="module.function")]
TargetType = Literal[
    "glob",
    "list",
    "pcre",
    "grain",
    "grain_pcre",
    "pillar",
    "pillar_exact",
    "pillar_pcre",
    "ipcidr",
    "range",
    "compound",
]
TYPED_CHARACTERS = 4096
COMMITS_CHARACTERS = 1024
Late = Literal["drop", "run"]
DeviceOutcome = Literal["ok", "failed", "refused", "expired", "timed_out", "unknown", "cancelled", "unreachable"]
"""Unreachable is what is said in the stead of a device that says nothing by itself."""
Outbox = Annotated[bytes, Meta(max_length=limits.OUTBOX_BYTES)]
Sequence = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Session = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}$(?!\n)")]
Retcode = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
Retcodes = Annotated[dict[Annotated[str, Meta(max_length=130)], Retcode], Meta(max_length=limits.ARGUMENTS)]
Executions = Annotated[int, Meta(ge=0, lt=2**31)]
Why = Annotated[str, Meta(max_length=limits.WHY_CHARACTERS)]
Bitmap = Annotated[bytes, Meta(max_length=limits.DEVICES_PER_STATION // 8 + 1)]
Tag = Annotated[str, Meta(min_length=1, max_length=512)]
AuditName = Annotated[str, Meta(max_length=limits.AUDIT_NAME_CHARACTERS)]
AuditText = Annotated[str, Meta(max_length=limits.AUDIT_TEXT_CHARACTERS)]
AuditVerdict = Literal["allow", "deny", "hold"]
WallSeconds = float
Grains = dict[str, Any]


class Job(Struct, frozen=True, kw_only=True, tag="job"):
    """A function with arguments for a target, with an issuer and an expiry."""

    jid: Jid
    tgt: Annotated[str, Meta(min_length=1, max_length=limits.TARGET_CHARACTERS)]
    tgt_type: TargetType = "glob"
    fun: FunctionName
    arg: Annotated[list[Any], Meta(max_length=limits.ARGUMENTS)] = []
    kwarg: Annotated[dict[str, Any], Meta(max_length=limits.ARGUMENTS)] = {}
    user: Annotated[str, Meta(max_length=128)]
    issued: WallSeconds
    expires: WallSeconds
    late: Late = "drop"
    run_limit: Annotated[float, Meta(gt=0, le=limits.RUN_LIMIT_MAX_SECONDS)] = limits.RUN_LIMIT_SECONDS
    why: AuditText = ""
    sealed: bool = False
    """Its arguments are for single devices alone: the stations on the way do not know them."""
    origin: Annotated[str, Meta(pattern=ORIGIN_OR_NONE)] = ""
    """Where it came from before this product had it, such as a Salt master; what that may order is granted apart."""
    typed: Annotated[str, Meta(max_length=TYPED_CHARACTERS)] = ""
    typed_type: Annotated[str, Meta(max_length=32)] = ""
    """What was asked for, where the target is what it stands for: a nodegroup's name, or more than was granted."""
    commits: Annotated[str, Meta(max_length=COMMITS_CHARACTERS)] = ""
    """The git commits of the files that its arguments name, each as ``environment:commit``."""
    folders: Folders | UnsetType = UNSET


# --- station to device ---------------------------------------------------------------------------------------------


class Welcome(Struct, frozen=True, tag="welcome"):
    """The answer to ``Hello``: the device is registered. ``index`` is its place in this site's bitmaps, for ever."""

    session: Session
    index: Annotated[int, Meta(ge=0, lt=limits.DEVICES_PER_STATION)]
    beat_seconds: Annotated[float, Meta(ge=1, le=3600)] = limits.BEAT_SECONDS


class Deliver(Struct, frozen=True, tag="deliver"):
    """A job on its way. ``remaining`` is seconds until its expiry, so that a device without a clock can judge it."""

    job: bytes
    remaining: float
    bitmap: Bitmap | None = None


class Cancel(Struct, frozen=True, tag="cancel"):
    """Do not start this job; what has started goes on."""

    jid: Jid
    bitmap: Bitmap | None = None


class Confirm(Struct, frozen=True, tag="confirm"):
    """The returns for these jobs are on the station's disk; the device may forget them."""

    jids: Annotated[list[Jid], Meta(max_length=limits.OPEN_JOBS)]


class Certificate(Struct, frozen=True, tag="certificate"):
    """A newer certificate of this device: another name, or another signer."""

    body: Annotated[bytes, Meta(max_length=limits.CERTIFICATE_BYTES)]


Downward = Welcome | Confirm | Certificate | Answer
"""What comes in frames of a session. Jobs, cancellations and what is said to everybody are signed, and come bare."""

# --- device to station ---------------------------------------------------------------------------------------------


class Hello(Struct, frozen=True, tag="hello"):
    """A device that connected. ``session`` is random per connection, so that an old last will is not taken for new."""

    session: Session
    agent: Annotated[str, Meta(max_length=64)]
    grains: Grains
    outbox: Outbox = b""
    oldest: Sequence = 0
    """No sequence below this will come from this outbox any more."""


class Beat(Struct, frozen=True, tag="beat"):
    """Still alive; the jobs under way; and how often what was refused since the device started, by reason."""

    session: Session
    running: Annotated[list[Jid], Meta(max_length=limits.DEVICE_RUNNING + limits.DEVICE_QUEUE)] = []
    refused: Annotated[
        dict[Annotated[str, Meta(max_length=32)], Annotated[int, Meta(ge=1, le=2**53)]], Meta(max_length=16)
    ] = {}


class Gone(Struct, frozen=True, tag="gone"):
    """The last will of a connection (``lost``), or a clean stop (``stopped``)."""

    session: Session
    why: Literal["lost", "stopped"] = "lost"


class Running(Struct, frozen=True, tag="running", omit_defaults=True):
    """The device has this job and it has started, or waits for its turn there.

    ``away``: the job restarts the device, which may not be heard for so many seconds and answers then.
    """

    jid: Jid
    away: Annotated[float, Meta(ge=0, le=limits.RUN_LIMIT_MAX_SECONDS)] = 0.0


class Return(Struct, frozen=True, kw_only=True, tag="return"):
    """What one device says of one job. ``executions`` is how often this device ever ran this jid: 0 or 1.

    (``outbox``, ``sequence``) is its place in all that the device ever said; without one it is known by its job alone.
    """

    jid: Jid
    fun: Annotated[str, Meta(max_length=130)]
    outcome: DeviceOutcome
    retcode: Retcode = 0
    value: Any = None
    why: Why = ""
    duration: Annotated[float, Meta(ge=0)] = 0.0
    executions: Executions = 0
    outbox: Outbox = b""
    sequence: Sequence = 0
    retcodes: Retcodes | UnsetType = UNSET
    """Of each function, where a job has several."""


class Reseal(Struct, frozen=True, tag="reseal"):
    """This job cannot be opened or judged as it is sealed: it may be sealed again, under the same jid."""

    jid: Jid
    reason: Annotated[str, Meta(max_length=64)]


class EpochWanted(Struct, frozen=True, tag="epoch_wanted"):
    """The device lacks the newest group key."""


Upward = Hello | Beat | Gone | Running | Return | Reseal | EpochWanted | Question

# --- station to station: items of the spool ------------------------------------------------------------------------


class Manifest(Struct, frozen=True, kw_only=True, tag="manifest"):
    """One page of a station's answer to "who will answer this job". The page with ``final`` ends the answer.

    ``count`` and ``digest`` (``manifest_digest``) are of this page; ``revision`` is the registry's.
    """

    jid: Jid
    site: SiteId
    ids: Annotated[list[DeviceId], Meta(max_length=limits.MANIFEST_PAGE)]
    count: Annotated[int, Meta(ge=0, le=limits.MANIFEST_PAGE)]
    digest: Annotated[bytes, Meta(max_length=32)]
    revision: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    final: bool


class OutcomeRecord(Struct, frozen=True, kw_only=True, tag="outcome"):
    """How a job ended on one device, with what it returned. ``seen``: when a silent device was last heard."""

    jid: Jid
    site: SiteId
    id: DeviceId
    fun: Annotated[str, Meta(max_length=130)]
    outcome: Outcome
    retcode: Retcode = 0
    value: Any = None
    why: Why = ""
    seen: WallSeconds | None = None
    ended: WallSeconds
    duration: Annotated[float, Meta(ge=0)] = 0.0
    executions: Executions = 0
    retcodes: Retcodes | UnsetType = UNSET


class Close(Struct, frozen=True, kw_only=True, tag="close"):
    """A station's last word on a job: the count of each outcome."""

    jid: Jid
    site: SiteId
    counts: Annotated[dict[str, Annotated[int, Meta(ge=0, lt=2**31)]], Meta(max_length=len(Outcome))]


class Event(Struct, frozen=True, kw_only=True, tag="event"):
    """Something that happened at a site: tag, data and stamp, with Salt's tags."""

    tag: Tag
    data: dict[str, Any]
    stamp: WallSeconds
    site: SiteId


class JobDefinition(Struct, frozen=True, tag="job_definition"):
    """The job that the items after it are about: a master that did not issue it can make sense of them."""

    job: bytes
    site: SiteId


class AuditRecord(Struct, frozen=True, kw_only=True, tag="audit"):
    """Who asked for what at a site, and the answer. ``mark`` names the row for ever, ``times`` counts refusals."""

    mark: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}-[0-9]{1,18}$(?!\n)")]
    site: SiteId
    at: WallSeconds
    user: AuditName
    door: AuditName
    action: AuditName
    subject: AuditText
    verdict: AuditVerdict
    why: AuditText = ""
    jid: AuditName = ""
    fun: AuditName = ""
    arguments: AuditText = ""
    times: Annotated[int, Meta(ge=1, le=10**15)] = 1


Item = Manifest | OutcomeRecord | Close | Event | JobDefinition | AuditRecord

# --- bytes ---------------------------------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder()
_job: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(Job)
_downward: msgspec.msgpack.Decoder[Downward] = msgspec.msgpack.Decoder(Downward)
_upward: msgspec.msgpack.Decoder[Upward] = msgspec.msgpack.Decoder(Upward)
_item: msgspec.msgpack.Decoder[Item] = msgspec.msgpack.Decoder(Item)
_value: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder()

T = TypeVar("T")


def encode(message: Job | Downward | Upward | Item) -> bytes:
    """A message as msgpack, with its type in the field ``type``."""
    return _encoder.encode(message)


def encode_value(value: Any) -> bytes:
    """A plain value as msgpack, as the store keeps it."""
    return _encoder.encode(value)


def decode_value(body: bytes) -> Any:
    """A plain value from msgpack. Raises ``Refused``."""
    value = decode_bounded(_value, body)
    check_plain(value)
    return value


def decode_stored(body: bytes) -> Any:
    """A plain value that this program itself put on disk, after it was checked; of any size."""
    return _value.decode(body)


def decode_job(body: bytes) -> Job:
    """A job from the bytes its issuer made. Raises ``Refused``."""
    job = decode_bounded(_job, body)
    check_plain(job.arg)
    check_plain(job.kwarg)
    check_finite(job.issued, job.expires)
    return job


def decode_downward(body: bytes) -> Downward:
    """A message a station sent to a device. Raises ``Refused``."""
    return decode_bounded(_downward, body)


def decode_upward(body: bytes) -> Upward:
    """A message a device sent to its station. Raises ``Refused``."""
    message = decode_bounded(_upward, body)
    if isinstance(message, Return):
        check_plain(message.value)
        check_finite(message.duration)
    elif isinstance(message, Hello):
        if len(_encoder.encode(message.grains)) > limits.GRAINS_BYTES:
            raise Refused("grains_too_large", f"grains are limited to {limits.GRAINS_BYTES} bytes")
        check_plain(message.grains)
    return message


def decode_item(body: bytes) -> Item:
    """An item of a site's spool. Raises ``Refused``."""
    item = decode_bounded(_item, body, limits.ITEM_BYTES)
    if isinstance(item, OutcomeRecord):
        check_plain(item.value)
        check_finite(item.ended, item.duration, item.seen or 0.0)
    elif isinstance(item, Event):
        check_plain(item.data)
        check_finite(item.stamp)
    elif isinstance(item, AuditRecord):
        check_finite(item.at)
    return item


def decode_bounded(decoder: msgspec.msgpack.Decoder[T], body: bytes, limit: int = limits.MESSAGE_BYTES) -> T:
    """Decode, turning every way bytes can be wrong into ``Refused`` (``oversized``, ``malformed``, ``wrong_type``)."""
    if len(body) > limit:
        raise Refused("oversized", f"{len(body)} bytes, at most {limit}")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refused("wrong_type", str(error)) from None
    # Beside its own error, msgspec lets text that is not UTF-8, time stamps no calendar has, unhashable keys and
    # nesting past the interpreter's limit through as these.
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refused("malformed", str(error)) from None


def check_plain(value: object, depth: int = 0) -> None:
    """Refuse what JSON could not carry: foreign types, keys that are not text, nesting past ``VALUE_DEPTH``."""
    if value is None or isinstance(value, (str, bool, int, float, bytes)):
        return
    if depth >= limits.VALUE_DEPTH:
        raise Refused("too_deep", f"values nest at most {limits.VALUE_DEPTH} deep")
    if isinstance(value, list):
        for inner in value:
            check_plain(inner, depth + 1)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise Refused("wrong_type", f"a key must be text, found {type(key).__name__}")
            check_plain(inner, depth + 1)
    else:
        raise Refused("wrong_type", f"{type(value).__name__} cannot be a value")


def check_finite(*numbers: float) -> None:
    """Refuse times that no calendar has: not a number, infinite, before the year 1 or after the year 9999."""
    for number in numbers:
        if not -6.2e10 < number < 2.5e11:
            raise Refused("wrong_type", f"{number} is not a time")
