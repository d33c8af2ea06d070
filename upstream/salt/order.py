"""SaltOrder: one publish of a Salt master, typed and bounded, after its signature and its box were found good."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.several import split

JID: Final = re.compile(r"\d{20}(_\d{1,10})?", re.ASCII)
"""``YYYYmmddHHMMSSffffff``, and the number of the process that made it where the master adds it."""

FUNCTIONS: Final = 64
"""Most functions of a compound job."""

LIST_CHARACTERS: Final = 128 * limits.DEVICES_PER_STATION
"""Of the names in a list: whether a job still runs, a master asks with the names of all that have not answered."""

NAME_CHARACTERS: Final = 256
AUTH_ENTRIES: Final = 1024
NESTED: Final = 64
"""Deepest value of a publish. How deep an argument may be is less, and is said to whoever ordered it."""


class SaltOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a master ordered. It can be kept on disk with ``msgspec.msgpack`` and read back as it was."""

    jid: str
    fun: str | tuple[str, ...]
    """A tuple when several functions are ordered at once (a compound job)."""
    arg: list[Any] = []
    """The arguments by position. In a compound job one list for each function, as it came."""
    kwarg: dict[str, Any] = {}
    """The arguments by name, taken out of the map with ``__kwarg__`` in ``arg``. Empty in a compound job."""
    tgt: str | tuple[str, ...]
    """A tuple of ids when the kind is ``list``, in either of the forms that Salt sends; else the expression."""
    tgt_type: str = "glob"
    delimiter: str = ":"
    ret: str = ""
    """Names of returners that are asked for as well, with commas."""
    to: float = 0.0
    """How long whoever asked waits, in seconds; 0 when the master does not say."""
    user: str = ""
    auth_list: list[Any] = []
    """What whoever asked may do, to be enforced here; empty for the superuser of the master."""
    master_id: str = ""
    """To be said again in the answers."""
    metadata: dict[str, Any] = {}
    load: dict[str, Any] = {}
    """The whole publish in text, as a master that did not make the job wants it with the answers."""


def read_order(load: Mapping[Any, Any]) -> SaltOrder:
    """The order in a publish. Raises ``Refused`` with the reason ``malformed`` and the field."""
    fun = _functions(load.get("fun"))
    arg = load.get("arg", [])
    _check(isinstance(arg, list) and len(arg) <= limits.ARGUMENTS, "arg")
    plain, named = (arg, {}) if isinstance(fun, tuple) else split(arg)
    tgt_type = _text(load, "tgt_type", "glob")
    _check(_keyed(arg), "arg")
    # Only the empty list, or none, is the superuser's: an empty map or text says nothing that could be trusted.
    auth_list = load.get("auth_list")
    auth_list = [] if auth_list is None else auth_list
    _check(isinstance(auth_list, list) and len(auth_list) <= AUTH_ENTRIES, "auth_list")
    metadata = load.get("metadata") or {}
    _check(isinstance(metadata, dict) and _keyed(metadata), "metadata")
    _check(_keyed(auth_list), "auth_list")
    _check(all(_keyed(value) for value in load.values()), "load")
    return SaltOrder(
        jid=_jid(load),
        fun=fun,
        arg=plain,
        kwarg=named,
        tgt=_target(load.get("tgt"), tgt_type),
        tgt_type=tgt_type,
        delimiter=_text(load, "delimiter", ":") or ":",
        ret=_returners(load.get("ret")),
        to=_seconds(load.get("to")),
        user=_text(load, "user", ""),
        auth_list=auth_list,
        master_id=_text(load, "master_id", ""),
        metadata=metadata,
        load={key: value for key, value in load.items() if isinstance(key, str)},
    )


def _check(good: bool, field: str) -> None:
    if not good:
        raise Refused("malformed", f"the field {field} of a publish")


def _keyed(value: object, depth: int = 0) -> bool:
    """Whether each key in it is text, or a number as YAML makes them, and it nests no deeper than can be written."""
    if depth > NESTED:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, (str, int)) and _keyed(inner, depth + 1) for key, inner in value.items())
    return not isinstance(value, list) or all(_keyed(inner, depth + 1) for inner in value)


def _jid(load: Mapping[Any, Any]) -> str:
    jid = load.get("jid")
    if not isinstance(jid, str) or JID.fullmatch(jid) is None:
        raise Refused("malformed", "the field jid of a publish")
    return jid


def _text(load: Mapping[Any, Any], field: str, default: str) -> str:
    value = load.get(field)
    if value is None:
        return default
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS:
        raise Refused("malformed", f"the field {field} of a publish")
    return value


def _functions(fun: object) -> str | tuple[str, ...]:
    names = fun if isinstance(fun, list) else [fun]
    if not 1 <= len(names) <= FUNCTIONS:
        raise Refused("malformed", "the field fun of a publish")
    found = tuple(name for name in names if isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS)
    _check(len(found) == len(names), "fun")
    return found if isinstance(fun, list) else found[0]


def _target(tgt: object, kind: str) -> str | tuple[str, ...]:
    most = LIST_CHARACTERS if kind == "list" else limits.TARGET_CHARACTERS
    if isinstance(tgt, list):
        ids = tuple(name for name in tgt if isinstance(name, str))
        _check(len(ids) == len(tgt) and sum(map(len, ids)) <= most, "tgt")
        if kind == "list":
            return ids
        # A compound target may come as the list of its words.
        return " ".join(ids)
    if not isinstance(tgt, str) or len(tgt) > most:
        raise Refused("malformed", "the field tgt of a publish")
    if kind == "list":
        return tuple(name for name in (part.strip() for part in tgt.split(",")) if name)
    return tgt


def _returners(ret: object) -> str:
    if isinstance(ret, list):
        ret = ",".join(str(name) for name in ret[:FUNCTIONS])
    return ret[:NAME_CHARACTERS] if isinstance(ret, str) else ""


def _seconds(to: object) -> float:
    # Not a bool, which is an int; and NaN is not between the two.
    if isinstance(to, (int, float)) and not isinstance(to, bool) and 0 <= to <= limits.JOB_EXPIRY_MAX_SECONDS:
        return float(to)
    return 0.0
