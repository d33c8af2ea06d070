"""The claims of each object that a broker may carry, and who signs it: the design's table, as checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from device_agent.trust import claims as c

Check = Callable[[Any], bool]

DID = re.compile(r"[a-z2-7]{26}")
SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FIRST_SECOND, LAST_SECOND = 1_577_836_800, 4_102_444_800
"""The years from 2020 to 2099."""

STATES = (
    *("pending", "rejected", "revoked", "full", "window_closed"),
    *("token_used", "token_expired", "token_unknown", "token_other_site", "token_other_serial"),
)
ROLES = {"job", "enrol", "site-ca", "revoke", "epoch", "root-shell"}


def is_octets(value: Any, size: int | None = None) -> bool:
    """Whether this is a byte string, of this size."""
    return type(value) is bytes and size in {None, len(value)}


def octets(size: int) -> Check:
    return lambda value: is_octets(value, size)


def sealed(at_least: int) -> Check:
    """Something sealed: an encapsulated key, or at least a tag, and what is in it."""
    return lambda value: is_octets(value) and len(value) >= at_least


def number(most: int = 2**64 - 1, least: int = 0) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def text(most: int) -> Check:
    return lambda value: type(value) is str and len(value) <= most and value.isprintable()


def matching(pattern: re.Pattern[str]) -> Check:
    return lambda value: type(value) is str and pattern.fullmatch(value) is not None


def one_of(*words: str) -> Check:
    return lambda value: type(value) is str and value in words


def listed(check: Check, most: int) -> Check:
    return lambda value: type(value) is list and len(value) <= most and all(map(check, value))


def is_jid(value: Any) -> bool:
    return is_octets(value, 20) and value.isdigit()


def is_confirmation_key(value: Any) -> bool:
    """A COSE_Key of an Ed25519 public key (RFC 8747)."""
    key = value.get(1) if type(value) is dict and list(value) == [1] else None
    return type(key) is dict and list(key) == [1, -1, -2] and (key[1], key[-1]) == (1, 6) and is_octets(key[-2], 32)


def is_hardware(value: Any) -> bool:
    return type(value) is dict and list(value) == ["model"] and text(64)(value["model"])


def is_mark(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and is_octets(value[0], 8) and number()(value[1])


def is_policy(value: Any) -> bool:
    if type(value) is not dict or not {"fun", "ttl", "devmax", "devttl", "grp", "offl"} <= set(value):
        return False
    globs = listed(text(256), 256)
    return (
        set(value) <= {"fun", "arg", "ttl", "devmax", "devttl", "grp", "offl", "org"}
        and globs(value["fun"])
        and globs(value["grp"])
        and all(number()(value[name]) for name in ("ttl", "devmax", "devttl", "offl"))
    )


def is_master(value: Any) -> bool:
    return (
        type(value) is dict
        and list(value) == [1, 2, 3, 4, 5, 6]
        and is_octets(value[1], 32)
        and is_octets(value[2], 32)
        and listed(one_of(*ROLES), len(ROLES))(value[3])
        and text(255)(value[4])
        and (value[5] == b"" or is_octets(value[5], 32))
        and listed(text(255), 16)(value[6])
    )


time = number(LAST_SECOND, FIRST_SECOND)
did = matching(DID)
site = matching(SITE)
key = octets(32)
nonce = octets(16)
epoch = number(2**32 - 1)
sealed_to_a_key = sealed(32 + 16 + 32)


@dataclass(frozen=True)
class Kind:
    """One kind of object."""

    signers: tuple[str, ...]
    must: Mapping[int, Check]
    may: Mapping[int, Check] = field(default_factory=dict)


ROOT = Kind(
    ("root",),
    {
        c.VER: number(least=1),
        c.IAT: time,
        c.THRESHOLD: number(32, 1),
        c.ROOTS: listed(key, 32),
        c.MASTERS: listed(is_master, 32),
        c.RELEASES: listed(key, 32),
        c.KIDS: listed(octets(8), 20_000),
        c.MINIMUM: lambda value: type(value) is dict,
    },
)

OBJECTS = {
    "os-site": Kind(
        ("master",),
        {
            c.SUB: site,
            c.AUD: site,
            c.IAT: time,
            c.EXP: time,
            c.CNF: is_confirmation_key,
            c.KEM: key,
            c.CURVE: key,
            c.ROLE: listed(one_of(*(ROLES - {"site-ca"})), len(ROLES)),
            c.POL: is_policy,
        },
    ),
    "os-enr": Kind(
        ("device",),
        {
            c.SUB: did,
            c.CNF: is_confirmation_key,
            c.KEM: key,
            c.NONCE: nonce,
            c.SERIAL: text(64),
            c.HARDWARE: is_hardware,
        },
        {c.TOKEN: octets(8), c.FLAGS: number(1, 1)},
    ),
    "os-nay": Kind(
        ("site",),
        {c.SUB: did, c.AUD: site, c.IAT: time, c.NONCE: nonce, c.STATE: one_of(*STATES), c.NAME: text(300)},
    ),
    "os-cfm": Kind(("device",), {c.SUB: did, c.AUD: site, c.NONCE: nonce}),
    "os-job": Kind(
        ("master", "site"),
        {
            c.SUB: lambda value: value == "all" or did(value),
            c.AUD: site,
            c.IAT: time,
            c.EXP: time,
            c.CTI: is_jid,
            c.SEQ: number(),
            c.TGT: text(65_536),
            c.TGT_TYPE: text(64),
            c.LATE: one_of("drop", "run"),
            c.RUN_LIMIT: number(least=1),
            c.CT: sealed(16),
        },
        {c.EPOCH: epoch, c.SALT: octets(16)},
    ),
    "os-pre": Kind(("site",), {c.AUD: site, c.IAT: time, c.EXP: time, c.KEM: key, c.INSTANCE: octets(8)}),
    "os-ses": Kind(
        ("device",),
        {
            c.SUB: did,
            c.AUD: site,
            c.NONCE: nonce,
            c.VER: number(),
            c.EPOCH: epoch,
            c.MARKS: listed(is_mark, 16),
            c.PREKEY: octets(8),
            c.CT: octets(32 + 16 + 32),
        },
    ),
    "os-sok": Kind(
        ("site",),
        {c.SUB: did, c.AUD: site, c.NONCE: nonce, c.IAT: time, c.EPOCH: epoch, c.VER: number(), c.INDEX: number(2**20)},
    ),
    "os-rol": Kind(("site",), {c.SUB: did, c.AUD: site, c.IAT: time, c.SID: octets(8)}),
    "os-bye": Kind(("device",), {c.SUB: did, c.AUD: site, c.NONCE: nonce}),
    "os-can": Kind(("site",), {c.AUD: site, c.IAT: time, c.CTI: is_jid}),
    "os-ack": Kind(("site",), {c.AUD: site, c.IAT: time, c.JIDS: listed(is_jid, 1000), c.BITS: is_octets}),
    "os-ep": Kind(
        ("site", "master"),
        {c.SUB: did, c.AUD: site, c.IAT: time, c.EPOCH: epoch, c.FLAGS: number(1), c.CT: octets(32 + 16 + 32)},
    ),
    "os-tim": Kind(("master",), {c.IAT: time}),
    "os-rev": Kind(
        ("site", "master"), {c.VER: number(least=1), c.IAT: time, c.KIDS: listed(octets(8), 20_000)}, {c.AUD: site}
    ),
}
