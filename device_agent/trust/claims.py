"""The claims of a proof by name: registered ones of RFC 8392 and RFC 8747, and private ones below -65536.

Each reader takes the claims it knows with ``take`` and its kind; what is missing, of another kind or out of bounds is
refused as ``claim_invalid`` and names the claim.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

from device_agent.errors import Refused

SUB: Final = 2
AUD: Final = 3
EXP: Final = 4
IAT: Final = 6
CTI: Final = 7
CNF: Final = 8
KEM: Final = -70001
ROLE: Final = -70002
POL: Final = -70003
SEQ: Final = -70004
EPOCH: Final = -70005
SALT: Final = -70006
CT: Final = -70007
NONCE: Final = -70008
CURVE: Final = -70009
VER: Final = -70010
TGT: Final = -70011
TGT_TYPE: Final = -70012
NAME: Final = -70013
INDEX: Final = -70014
LATE: Final = -70015
RUN_LIMIT: Final = -70016
JIDS: Final = -70017
BITS: Final = -70018
PREKEY: Final = -70019
INSTANCE: Final = -70020
SERIAL: Final = -70021
HARDWARE: Final = -70022
TOKEN: Final = -70023
KIDS: Final = -70024
MARKS: Final = -70025
SID: Final = -70026
FLAGS: Final = -70027
ROOTS: Final = -70028
THRESHOLD: Final = -70029
MASTERS: Final = -70030
RELEASES: Final = -70031
MINIMUM: Final = -70032
PASSWORD: Final = -70033
PORT: Final = -70034
AUTHORITY: Final = -70035
TLS_PORT: Final = -70036
STATE: Final = -70037
ADDRESSES: Final = -70038
FILES: Final = -70039
STORE: Final = -70040
STREAM: Final = -70041
COUNT: Final = -70042
ROOT: Final = -70043

NAMES: dict[int, str] = {value: name.lower() for name, value in list(globals().items()) if isinstance(value, int)}

TIME_MAX: Final = 253_402_300_799
"""The last second of the year 9999."""

TEXT_MAX: Final = 255

T = TypeVar("T", int, bytes, str, list[Any], dict[Any, Any])


def take(claims: dict[int, Any], label: int, kind: type[T], *, size: int | None = None, most: int | None = None) -> T:
    """A claim that must be there. ``size`` is its exact length, ``most`` its largest length or value."""
    if label not in claims:
        raise Refused("claim_missing", NAMES.get(label, str(label)))
    return _checked(claims[label], label, kind, size, most)


def take_if(
    claims: dict[int, Any], label: int, kind: type[T], *, size: int | None = None, most: int | None = None
) -> T | None:
    """A claim that may be missing."""
    return _checked(claims[label], label, kind, size, most) if label in claims else None


def take_time(claims: dict[int, Any], label: int) -> int:
    """A time in whole seconds since 1970."""
    return take(claims, label, int, most=TIME_MAX)


def take_matching(claims: dict[int, Any], label: int, pattern: str) -> str:
    """A text of one form."""
    value = take(claims, label, str, most=TEXT_MAX)
    if not re.match(pattern, value):
        raise Refused("claim_invalid", f"{NAMES.get(label, str(label))} is {value[:80]!r}")
    return value


def only(claims: dict[int, Any], *allowed: int) -> None:
    """Refuse claims beside these: what a reader does not know it cannot hold anybody to."""
    for label in claims:
        if label not in allowed:
            raise Refused("claim_unknown", NAMES.get(label, str(label)))


def _checked(value: Any, label: int, kind: type[T], size: int | None, most: int | None) -> T:
    name = NAMES.get(label, str(label))
    if type(value) is not kind:
        raise Refused("claim_invalid", f"{name} is {type(value).__name__}, expected {kind.__name__}")
    if isinstance(value, int):
        if not 0 <= value <= (most if most is not None else 2**64 - 1):
            raise Refused("claim_invalid", f"{name} is {value}")
    elif (size is not None and len(value) != size) or (most is not None and len(value) > most):
        raise Refused("claim_invalid", f"{name} has length {len(value)}")
    return value
