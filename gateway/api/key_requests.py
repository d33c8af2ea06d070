"""What is asked of keys, as types: the bodies of the operations in ``keys``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from device_agent.protocol import limits
from gateway.devices.doors import TOKEN_SECONDS_MAX as TOKEN_SECONDS
from gateway.devices.doors import TOKENS_AT_ONCE
from gateway.devices.windows import LONGEST_SECONDS as WINDOW_SECONDS
from gateway.fleet.grants import LONGEST_DAYS

KeyKind = Literal["site", "device"]
Typed = Annotated[str, Meta(max_length=256)]
Why = Annotated[str, Meta(max_length=1024)]


class KeyChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Which key; a fingerprint None when only one of a site can be meant, ``kind`` None when the name says enough."""

    fingerprint: Typed | None = None
    kind: KeyKind | None = None


class KeyAcceptance(KeyChoice, frozen=True, forbid_unknown_fields=True):
    """Which key. A device needs its fingerprint, and may be given a ``name`` (or a template of one).

    For a site: what it may order of its own devices beside what it may anyway, and for how many days. ``request`` is
    what `outstation gateway init` printed, for a site that has never knocked; the answer then has the bundle for it.
    """

    name: Typed | None = None
    grants: Annotated[list[str], Meta(max_length=256)] = []
    origin: Annotated[str, Meta(max_length=64)] = ""
    only: bool = False
    days: Annotated[int, Meta(ge=0, le=LONGEST_DAYS)] = 0
    request: str | None = None


class KeyReason(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a key is revoked, for the audit; ``kind`` None when the name says enough."""

    why: Why = ""
    kind: KeyKind | None = None


class MatchingDevices(Struct, frozen=True, forbid_unknown_fields=True):
    """Devices to let in: those of these dids that claim a serial number which the glob matches."""

    serial: Typed
    dids: Annotated[list[Typed], Meta(max_length=limits.DEVICES_PER_STATION)]
    name: Typed | None = None


class ExpectedEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to expect: a did or a fingerprint, and perhaps the name that the device gets."""

    key: Typed
    name: Annotated[str, Meta(max_length=128)] = ""


class ExpectedList(Struct, frozen=True, forbid_unknown_fields=True):
    """Keys to expect."""

    keys: Annotated[list[ExpectedEntry], Meta(min_length=1, max_length=limits.DEVICES_PER_STATION)]


class WindowTerms(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long, for how many, and for whom a join window is open."""

    seconds: Annotated[float, Meta(gt=0, le=WINDOW_SECONDS)] = 600.0
    max: Annotated[int, Meta(ge=1, le=limits.DEVICES_PER_STATION)] = 200
    subnet: Annotated[str, Meta(max_length=64)] = ""
    model: Annotated[str, Meta(max_length=128)] = ""


class JoinTokenWish(Struct, frozen=True, forbid_unknown_fields=True):
    """Join tokens to make: how many devices each lets in, which and under which name, and where they find the site."""

    uses: Annotated[int, Meta(ge=1, le=limits.DEVICES_PER_STATION)] = 1
    serial: Annotated[str, Meta(max_length=64)] = ""
    seconds: Annotated[float, Meta(gt=0, le=TOKEN_SECONDS)] = 86_400.0
    name: Annotated[str, Meta(max_length=128)] = ""
    address: Annotated[str, Meta(max_length=255)] = ""
    count: Annotated[int, Meta(ge=1, le=TOKENS_AT_ONCE)] = 1
