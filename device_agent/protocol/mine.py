"""The mine: values that devices keep at their station for others to read, and the questions about them. Pure.

A device hands values over (``mine.keep``), takes them back (``mine.delete``), reads those of others (``mine.get``) and
asks how old its own are (``mine.ages``). A value is the return of a function under a name; ``mine_functions`` says
which, in the shapes that Salt has for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import DeviceId, check_finite, decode_bounded
from device_agent.protocol.questions import ANSWER_BYTES, QUESTION_BYTES

KEEP: Final = "mine.keep"
DELETE: Final = "mine.delete"
GET: Final = "mine.get"
AGES: Final = "mine.ages"
BAD_TARGET: Final = "bad_target"

ENTRIES: Final = 64
"""Most values of one device."""

VALUE_BYTES: Final = 64 * 1024
"""Largest value, encoded."""

DEVICE_BYTES: Final = 128 * 1024
"""Most that all values of one device are together: so they go up in one question."""

TARGET_CHARACTERS: Final = 4096
"""Longest target that says who may read a value."""

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Kind = Annotated[str, Meta(min_length=1, max_length=32)]
Value = Annotated[bytes, Meta(max_length=VALUE_BYTES)]
Names = Annotated[list[Name], Meta(min_length=1, max_length=ENTRIES)]


class Entry(Struct, frozen=True, omit_defaults=True):
    """A value under its name. ``allow_tgt``: the devices that may read it, all of the site where it is empty."""

    name: Name
    value: Value
    allow_tgt: Annotated[str, Meta(max_length=TARGET_CHARACTERS)] = ""
    allow_tgt_type: Kind = "glob"


class Keep(Struct, frozen=True):
    """Keep these values; with ``clear`` they are all that the device has from now on."""

    entries: Annotated[list[Entry], Meta(max_length=ENTRIES)]
    clear: bool = False


class Delete(Struct, frozen=True):
    """Let go of the value of this name; of all without a name."""

    name: Name | None = None


class Get(Struct, frozen=True):
    """The values of these names, of the devices that a target means."""

    tgt: Annotated[str, Meta(min_length=1, max_length=limits.TARGET_CHARACTERS)]
    names: Names
    tgt_type: Kind = "glob"


class Found(Struct, frozen=True, array_like=True):
    """One value of one device."""

    device: DeviceId
    name: Name
    value: Value


class Ages(Struct, frozen=True):
    """How many seconds ago each value of the asking device was told."""

    ages: Annotated[dict[Name, float], Meta(max_length=ENTRIES)]


class Call(NamedTuple):
    """What ``mine_functions`` says of one name: the function to call, and who may read what it returns."""

    name: str
    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]
    allow_tgt: str
    allow_tgt_type: str
    alias: bool
    """The function is said to be another than the name."""


_encoder = msgspec.msgpack.Encoder()
_keep = msgspec.msgpack.Decoder(Keep)
_delete = msgspec.msgpack.Decoder(Delete)
_get = msgspec.msgpack.Decoder(Get)
_found = msgspec.msgpack.Decoder(list[Found])
_ages = msgspec.msgpack.Decoder(Ages)


def encode(body: Keep | Delete | Get | Ages | list[Found]) -> bytes:
    """The body of a question or of its answer."""
    return _encoder.encode(body)


def decode_keep(body: bytes) -> Keep:
    """Raises ``Refused``."""
    return decode_bounded(_keep, body, QUESTION_BYTES)


def decode_delete(body: bytes) -> Delete:
    """Raises ``Refused``."""
    return decode_bounded(_delete, body, QUESTION_BYTES)


def decode_get(body: bytes) -> Get:
    """Raises ``Refused``."""
    return decode_bounded(_get, body, QUESTION_BYTES)


def decode_found(body: bytes) -> list[Found]:
    """Raises ``Refused``."""
    return decode_bounded(_found, body, ANSWER_BYTES)


def decode_ages(body: bytes) -> Ages:
    """Raises ``Refused``."""
    ages = decode_bounded(_ages, body, ANSWER_BYTES)
    check_finite(*ages.ages.values())
    return ages


def calls(functions: object) -> list[Call]:
    """``mine_functions`` in any of Salt's shapes: a list of names, or a mapping of names to what is to be called.

    Raises ``Refused`` with the entry that has none of them.
    """
    if isinstance(functions, list):
        given: Mapping[Any, Any] = {name: None for name in functions if isinstance(name, str)}
        if len(given) < len(functions):
            raise Refused("bad_function", "a list of functions has names in it, each once")
    elif isinstance(functions, Mapping):
        given = functions
    else:
        raise Refused("bad_function", "functions are a list of names, or a mapping of names")
    if len(given) > ENTRIES:
        raise Refused("too_many", f"{len(given)} functions, at most {ENTRIES}")
    return [call(name, definition) for name, definition in given.items()]


def sound_calls(functions: object) -> tuple[list[Call], list[str]]:
    """The same, where an entry that has none of the shapes is left out; and why each was. Raises ``Refused``."""
    if not isinstance(functions, Mapping) or len(functions) > ENTRIES:
        return calls(functions), []
    found, lost = [], []
    for name, definition in functions.items():
        try:
            found.append(call(name, definition))
        except Refused as refusal:
            lost.append(f"{str(name)[:128]}: {refusal.detail}")
    return found, lost


def call(name: object, definition: object) -> Call:
    """One name with what stands behind it: nothing, arguments, or a mapping of them. Raises ``Refused``."""
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    for part in definition if isinstance(definition, list) else [definition] if definition is not None else []:
        if isinstance(part, Mapping):
            kwarg |= part
        elif isinstance(definition, list):
            arg.append(part)
        else:
            raise Refused("bad_function", f"{str(name)[:128]}: arguments are a list or a mapping")
    fun = kwarg.pop("mine_function", None)
    allow, kind = kwarg.pop("allow_tgt", None), kwarg.pop("allow_tgt_type", None)
    said = allowed(allow, kind)
    if not isinstance(name, str) or not 1 <= len(name) <= 128 or not isinstance(fun, str | None):
        raise Refused("bad_function", f"{str(name)[:128]}: a name and a mine_function are text")
    return Call(name, fun or name, arg, kwarg, *said, alias=bool(fun))


def allowed(tgt: object, tgt_type: object) -> tuple[str, str]:
    """Who may read a value, as a target and its kind; a list of ids is one. Raises ``Refused``."""
    if isinstance(tgt, list) and all(isinstance(each, str) for each in tgt):
        tgt, tgt_type = ",".join(tgt), "list"
    kind = "glob" if tgt_type is None else tgt_type
    if not isinstance(tgt, str | None) or not isinstance(kind, str):
        raise Refused("bad_target", "allow_tgt and allow_tgt_type are text")
    return tgt or "", kind or "glob"
