"""SaltOrder: one publish of a Salt master, typed and bounded, after its signature and its box were found good."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.several import split
from upstream.salt.wire import Unreadable

Value = TypeVar("Value")

JID: Final = re.compile(r"\d{20}(_\d{1,10})?", re.ASCII)
"""``YYYYmmddHHMMSSffffff``, and the number of the process that made it where the master adds it."""

ANSWERABLE_JID: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)
"""A jid of another form, as a program may choose it, starts no job. A refusal can be returned under such a word."""

FUNCTIONS: Final = 64
"""Most functions of a compound job."""

LIST_CHARACTERS: Final = 128 * limits.DEVICES_PER_STATION
"""Of the names in a list: whether a job still runs, a master asks with the names of all that have not answered."""

NAME_CHARACTERS: Final = 256
JID_SHOWN: Final = 40
AUTH_ENTRIES: Final = 1024
FAULT_CHARACTERS: Final = 512
NO_FUNCTION: Final[str | tuple[str, ...]] = ""
NO_TARGET: Final[str | tuple[str, ...]] = ""
NO_METADATA: Final[dict[str, Any]] = {}
NO_ARGUMENTS: Final[tuple[list[Any], dict[str, Any]]] = ([], {})
NOBODY: Final[list[Any]] = [None]
"""An ``auth_list`` that grants nothing; the empty one is the superuser's."""

READ: Final = frozenset(
    {"jid", "tgt", "tgt_type", "delimiter", "fun", "arg", "user", "auth_list", "master_id", "metadata", "ret"}
)
"""Fields with a reader of their own."""

NESTED: Final = 64
"""Deepest value of a publish. How deep an argument may be is less, and the answer to the order says so."""


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
    """How long the client of the master waits, in seconds; 0 if the master does not say."""
    user: str = ""
    auth_list: list[Any] = []
    """What the user of the master may do, which the gateway enforces; empty for the superuser of the master."""
    master_id: str = ""
    """To be said again in the answers."""
    metadata: dict[str, Any] = {}
    load: dict[str, Any] = {}
    """The whole publish in text, as a master that did not make the job wants it with the answers."""
    fault: str = ""
    """The fields that are malformed, with the reason. Then nothing runs, and each device of the target answers this."""
    has_target: bool = True
    """False if the target is malformed, so that no one can tell which devices are meant. ``fault`` says why."""


def read_order(load: Mapping[Any, Any]) -> SaltOrder:
    """Read the order in a publish.

    An order with a ``fault`` has a jid under which a refusal can be returned, and a target if ``has_target`` is set.
    Nothing else of it counts.

    Raises ``Refused`` with the reason ``unusable_jid`` where the master could not assign an answer to its job.
    """
    jid = _jid(load.get("jid"))
    fields = _Fields(load)
    fields.read(lambda: _check_jid(load.get("jid")), None)
    before = len(fields.faults)
    tgt_type = fields.read(lambda: _text(load, "tgt_type", "glob"), "glob")
    delimiter = fields.read(lambda: _text(load, "delimiter", ":") or ":", ":")
    tgt = fields.read(lambda: _target(load.get("tgt"), tgt_type), NO_TARGET)
    has_target = len(fields.faults) == before
    fun = fields.read(lambda: _functions(load.get("fun")), NO_FUNCTION)
    plain, named = fields.read(lambda: _arguments(load.get("arg", []), fun), NO_ARGUMENTS)
    order = SaltOrder(
        jid=jid,
        tgt=tgt,
        tgt_type=tgt_type,
        delimiter=delimiter,
        has_target=has_target,
        fun=fun or _shown(load.get("fun")),
        arg=plain,
        kwarg=named,
        ret=fields.read(lambda: _returners(load.get("ret")), ""),
        to=_seconds(load.get("to")),
        user=fields.read(lambda: _text(load, "user", ""), ""),
        auth_list=fields.read(lambda: _auth_list(load.get("auth_list")), NOBODY),
        master_id=fields.read(lambda: _text(load, "master_id", ""), ""),
        metadata=fields.read(lambda: _metadata(load.get("metadata") or {}), NO_METADATA),
    )
    fields.read_others()
    if fields.faults:
        return msgspec.structs.replace(order, fault="; ".join(fields.faults)[:FAULT_CHARACTERS])
    return msgspec.structs.replace(order, load={key: value for key, value in load.items() if isinstance(key, str)})


class _Fields:
    """Notes the faults of the fields that are read."""

    def __init__(self, load: Mapping[Any, Any]) -> None:
        self._load = load
        self.faults: list[str] = []

    def read(self, read: Callable[[], Value], otherwise: Value) -> Value:
        """What ``read`` returns; ``otherwise`` where the field is malformed."""
        try:
            return read()
        except Refused as refusal:
            self.faults.append(refusal.detail)
            return otherwise

    def read_others(self) -> None:
        """Fields without a reader are kept with the order, so their keys count as well."""
        for key, value in self._load.items():
            if key not in READ and (why := _odd(value)):
                self.faults.append(f"the field {str(key)[:64]} of a publish: {why}")


def _arguments(arg: object, fun: str | tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    _check_keys("arg", arg)
    if not isinstance(arg, list):
        raise _malformed("arg", f"found {_kind(arg)}, allowed is a list")
    if len(arg) > limits.ARGUMENTS:
        raise _malformed("arg", f"{len(arg)} arguments, at most {limits.ARGUMENTS}")
    if isinstance(fun, tuple):
        return arg, {}
    try:
        return split(arg)
    except Refused as refusal:
        raise _malformed("arg", refusal.detail) from None


def _auth_list(auth_list: object) -> list[Any]:
    # Only the empty list, or none, is the superuser's: an empty map or text says nothing that could be trusted.
    if auth_list is None:
        return []
    _check_keys("auth_list", auth_list)
    if not isinstance(auth_list, list) or len(auth_list) > AUTH_ENTRIES:
        raise _malformed("auth_list", f"allowed is a list of at most {AUTH_ENTRIES} entries")
    return auth_list


def _metadata(metadata: object) -> dict[str, Any]:
    _check_keys("metadata", metadata)
    if not isinstance(metadata, dict):
        raise _malformed("metadata", f"found {_kind(metadata)}, allowed is a map")
    return metadata


def _malformed(field: str, why: str) -> Refused:
    return Refused("malformed", f"the field {field} of a publish: {why}")


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _check_keys(field: str, value: object) -> None:
    """Each key is text, or a number as YAML makes them, and it nests no deeper than can be written."""
    found = _odd(value)
    if found:
        raise _malformed(field, found)


def _odd(value: object, depth: int = 0) -> str:
    """What of a value cannot be kept or passed on; empty where everything can."""
    if isinstance(value, Unreadable):
        return value.why
    if depth > NESTED:
        return f"it is nested deeper than {NESTED}"
    inner: Iterable[object] = value if isinstance(value, list) else ()
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, (str, int)):
                return f"a key must be text or a whole number, found {_kind(key)}"
        inner = value.values()
    return next(filter(None, (_odd(each, depth + 1) for each in inner)), "")


def _jid(jid: object) -> str:
    """The jid under which this order can be answered. Raises ``Refused``."""
    word = str(jid) if isinstance(jid, int) and not isinstance(jid, bool) else jid
    if not isinstance(word, str) or ANSWERABLE_JID.fullmatch(word) is None:
        raise Refused("unusable_jid", f"the field jid of a publish: found {_found(jid)}, allowed are 20 digits")
    return word


def _check_jid(jid: object) -> None:
    if not isinstance(jid, str) or JID.fullmatch(jid) is None:
        raise _malformed("jid", f"found {_found(jid)}, allowed are 20 digits, as Salt chooses them")


def _found(jid: object) -> str:
    return repr(jid[:JID_SHOWN]) if isinstance(jid, str) else _kind(jid)


def _text(load: Mapping[Any, Any], field: str, default: str) -> str:
    value = load.get(field)
    if value is None:
        return default
    if isinstance(value, Unreadable):
        raise _malformed(field, value.why)
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS:
        raise _malformed(field, f"allowed is text of at most {NAME_CHARACTERS} characters")
    return value


def _functions(fun: object) -> str | tuple[str, ...]:
    if isinstance(fun, Unreadable):
        raise _malformed("fun", fun.why)
    names = fun if isinstance(fun, list) else [fun]
    if not 1 <= len(names) <= FUNCTIONS:
        raise _malformed("fun", f"{len(names)} functions, at most {FUNCTIONS}")
    found = tuple(name for name in names if isinstance(name, str) and 0 < len(name) <= NAME_CHARACTERS)
    if len(found) != len(names):
        raise _malformed("fun", f"allowed are names of at most {NAME_CHARACTERS} characters")
    return found if isinstance(fun, list) else found[0]


def _target(tgt: object, kind: str) -> str | tuple[str, ...]:
    most = LIST_CHARACTERS if kind == "list" else limits.TARGET_CHARACTERS
    if isinstance(tgt, Unreadable):
        raise _malformed("tgt", tgt.why)
    if isinstance(tgt, list):
        ids = tuple(name for name in tgt if isinstance(name, str))
        if len(ids) != len(tgt) or sum(map(len, ids)) > most:
            raise _malformed("tgt", f"allowed are ids of together at most {most} characters")
        if kind == "list":
            return ids
        # A compound target may come as the list of its words.
        return " ".join(ids)
    if not isinstance(tgt, str) or len(tgt) > most:
        raise _malformed("tgt", f"allowed is text of at most {most} characters")
    if kind == "list":
        return tuple(name for name in (part.strip() for part in tgt.split(",")) if name)
    return tgt


def _shown(fun: object) -> str:
    """A name for the answer to an order whose functions are malformed."""
    names = [name for name in (fun if isinstance(fun, list) else [fun]) if isinstance(name, str)]
    return ",".join(names)[: limits.AUDIT_NAME_CHARACTERS] or "unreadable"


def _returners(ret: object) -> str:
    _check_keys("ret", ret)
    if isinstance(ret, list):
        ret = ",".join(str(name) for name in ret[:FUNCTIONS])
    return ret[:NAME_CHARACTERS] if isinstance(ret, str) else ""


def _seconds(to: object) -> float:
    # Not a bool, which is an int; and NaN is not between the two.
    if isinstance(to, (int, float)) and not isinstance(to, bool) and 0 <= to <= limits.JOB_EXPIRY_MAX_SECONDS:
        return float(to)
    return 0.0
