"""What rendered files say, as reactions in the order in which they are made. Pure.

Several files become one by the ids at their top, of which the later counts. What is wrong in one id is a trouble that
names it, and harms nothing else. The shapes are Salt's, the older ones too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, cast, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from gateway.jobs.nodegroups import TypedKind
from gateway.jobs.target_text import NotText, target_text
from gateway.reactor.settings import Order

Kind = Literal["local", "runner", "wheel", "caller"]
Level = Literal["error", "warning", "note"]

KINDS: Final[Mapping[str, Kind]] = {
    "local": "local",
    "cmd": "local",
    "runner": "runner",
    "wheel": "wheel",
    "caller": "caller",
}
"""The first word of a function, and what it stands for: ``cmd`` is the old name of ``local``."""

REACTIONS: Final = 1000
"""Most that one event may set off."""

NAME_CHARACTERS: Final = 200
WHAT_CHARACTERS: Final = 500

INTERNAL: Final = frozenset({"__id__", "__sls__", "__env__", "name", "names", "order", "fun", "key", "state"})
UNUSED: Final = ("timeout", "jid")
"""Options of Salt's client that have no meaning here."""

BEHIND_ALL: Final = 1_000_000
FIRST_FREE: Final = 1
GAP: Final = 100
NAMES_IN_ORDER: Final = 10_000
NOBODY: Final[tuple[str, TypedKind]] = ("", "glob")


class RenderedFile(Struct, frozen=True):
    """What one file says for one event, and the rule that brought it."""

    file: str
    rule: str
    data: Any


class Reaction(Struct, frozen=True, kw_only=True):
    """One call. ``said`` is its function as it is written, with its type; ``order`` is what sorts it."""

    id: str
    file: str
    rule: str
    said: str
    kind: Kind
    fun: str
    name: str = ""
    """The one of ``names`` that it is for."""

    tgt: str = ""
    tgt_type: TypedKind = "glob"
    arg: list[Any] = field(default_factory=list)
    kwarg: dict[str, Any] = field(default_factory=dict)
    order: float = 0
    ret: list[str] = field(default_factory=list)
    """Where the returns of its job are sent as well."""

    several: bool = False
    """Whether it answers several events that were collected, so that it is about the device of none."""

    direct: bool = False
    """Whether the arguments stood under the function by their names, and are to be fitted to it."""


class Trouble(Struct, frozen=True, kw_only=True):
    """What is wrong: in which file, at which line where one is known, under which id."""

    file: str
    what: str
    id: str = ""
    line: int = 0
    level: Level = "error"
    text: str = ""


class Compiled(Struct, frozen=True):
    """The reactions in their order, and what was wrong."""

    reactions: list[Reaction]
    troubles: list[Trouble]


class _Placed(NamedTuple):
    """A reaction with the order that it asks for, and its number among the names of its id, 0 where it has none."""

    reaction: Reaction
    order: Any
    number: int


class Tell(Protocol):
    """Takes what is wrong in an id."""

    def __call__(self, what: str, level: Level = "error") -> None:
        """One trouble."""


class _Wrong(Exception):
    """One id, or one function of it, that is left out."""


def compiled(files: Sequence[RenderedFile], order: Order = "type") -> Compiled:
    """What these files say together."""
    troubles: list[Trouble] = []
    bodies: dict[str, tuple[RenderedFile, Any]] = {}
    for file in files:
        if not file.data:
            continue
        if not isinstance(file.data, dict):
            troubles.append(Trouble(file=file.file, what="it holds no mapping of ids to reactions"))
            continue
        for name, body in file.data.items():
            bodies.pop(str(name), None)
            bodies[str(name)] = (file, body)
    found: list[_Placed] = []
    for name, (file, body) in bodies.items():
        for each in _of_id(name, file, body, troubles):
            if len(found) >= REACTIONS:
                what = f"an event sets off at most {REACTIONS} reactions"
                troubles.append(Trouble(file=file.file, id=name, what=what))
                return Compiled(_sorted(found, order), troubles)
            found.append(each)
    return Compiled(_sorted(found, order), troubles)


def all_or_none(found: Compiled) -> Compiled:
    """As Salt has it: one id that is wrong, and nothing of what the event would set off counts."""
    wrong = next((each for each in found.troubles if each.level == "error"), None)
    if wrong is None or not found.reactions:
        return found
    what = (
        f"{len(found.reactions)} reactions are left out because of {wrong.id or wrong.file} (reactions.wrong_id: event)"
    )
    return Compiled([], [*found.troubles, Trouble(file=wrong.file, id=wrong.id, what=what)])


def not_a_command(fun: str) -> str:
    """What is wrong with ``cmd.FUN``, which is no command of Salt's module ``cmd``."""
    return f"cmd.{fun} is read as type cmd and function {fun}; to run a command write local.cmd.{fun}"


def _of_id(name: str, file: RenderedFile, body: Any, troubles: list[Trouble]) -> Iterator[_Placed]:
    def tell(what: str, level: Level = "error") -> None:
        told = Trouble(file=file.file, id=name[:NAME_CHARACTERS], what=what[:WHAT_CHARACTERS], level=level)
        troubles.append(told)

    if name in ("include", "extend"):
        tell(f"{name} is of states and has no meaning in a reactor file")
        return
    if isinstance(body, str):
        body = {body: []}
    if not isinstance(body, dict):
        tell(f"under an id stands type.function with a list, and here {_kind(body)}")
        return
    kinds: set[str] = set()
    for key, items in body.items():
        word = str(key)
        if word.startswith("__"):
            continue
        first = word.partition(".")[0]
        if first in kinds:
            tell(f"{word} is ignored: an id has one function of each type", "warning")
            continue
        kinds.add(first)
        try:
            fun, given = _given(word, items)
            for number, (one, own) in enumerate(_names(word, given.pop("names", None)), start=1):
                try:
                    reaction = _reaction(name, file, word.partition(".")[0], fun, {**given, **own}, tell)
                except _Wrong as wrong:
                    raise _Wrong(f"{one}: {wrong}" if one else str(wrong)) from None
                yield _Placed(replace(reaction, name=one), own.get("order", given.get("order")), number if one else 0)
        except _Wrong as wrong:
            tell(str(wrong))


def _given(word: str, items: Any) -> tuple[str, dict[str, Any]]:
    """The function, and what stands under it."""
    _, _, fun = word.partition(".")
    if items is None:
        items = []
    if not isinstance(items, list):
        raise _Wrong(f"what stands under {word} is a list, and here {_kind(items)}")
    given: dict[str, Any] = {}
    for item in items:
        if isinstance(item, str) and not fun:
            fun = item
        elif isinstance(item, dict) and len(item) == 1:
            ((key, value),) = item.items()
            given[str(key)] = value
        else:
            raise _Wrong(f"under {word} each item is one name with its value, and here {str(item)[:80]!r}")
    return fun, given


def _names(word: str, said: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each of ``names`` once, with what it says otherwise; one without a name where there are none."""
    if said is None or said == []:
        yield "", {}
        return
    if not isinstance(said, list):
        raise _Wrong(f"names of {word} is a list, and here {_kind(said)}")
    if len(said) > REACTIONS:
        raise _Wrong(f"names of {word} has {len(said)} entries, at most {REACTIONS}")
    seen: list[Any] = []
    for entry in said:
        if entry in seen:
            continue
        seen.append(entry)
        own: dict[str, Any] | None = {}
        name = entry
        if isinstance(entry, dict):
            if len(entry) != 1:
                raise _Wrong(f"in names of {word} a mapping has one name, and here {str(entry)[:80]!r}")
            ((name, value),) = entry.items()
            own = _named(value)
        if own is None or isinstance(name, list | dict):
            raise _Wrong(
                f"names of {word} are texts, or a name with what is otherwise for it, and here {str(entry)[:80]!r}"
            )
        yield str(name)[:NAME_CHARACTERS], {**own, "name": str(name)}


def _reaction(name: str, file: RenderedFile, first: str, fun: str, given: Mapping[str, Any], tell: Tell) -> Reaction:
    word = f"{first}.{fun}" if fun else first
    if first not in KINDS:
        raise _Wrong(f"{first!r} is no type of a reaction; there are {', '.join(KINDS)}")
    if not fun:
        raise _Wrong(f"{word} names no function; it is written {first}.module.function")
    if first == "cmd" and "." not in fun:
        raise _Wrong(not_a_command(fun))
    kind = KINDS[first]
    tgt, tgt_type = _target(word, given, tell) if kind == "local" else NOBODY
    arg, kwarg = _arguments(kind, word, given, tell)
    return Reaction(
        id=name,
        file=file.file,
        rule=file.rule,
        said=f"{first}.{fun}",
        kind=kind,
        fun=fun,
        tgt=tgt,
        tgt_type=tgt_type,
        arg=arg,
        kwarg=kwarg,
        ret=_returners(word, given.get("ret")) if kind == "local" else [],
        direct=kind in ("runner", "wheel") and not {"args", "arg", "kwarg"} & given.keys(),
    )


def _target(word: str, given: Mapping[str, Any], tell: Tell) -> tuple[str, TypedKind]:
    said = given.get("tgt")
    kind = given.get("tgt_type", given.get("expr_form", "list" if isinstance(said, list) else "glob"))
    if said is None or said in ("", []):
        raise _Wrong(f"{word} has no tgt: which devices it is for")
    try:
        tgt = target_text(said)
    except NotText as wrong:
        raise _Wrong(f"{word}: {wrong}") from None
    if kind not in get_args(TypedKind):
        kinds = ", ".join(get_args(TypedKind))
        raise _Wrong(f"{str(kind)[:40]!r} is no tgt_type; there are {kinds}")
    known = {"tgt", "tgt_type", "expr_form", "ret", "args", "arg", "kwarg", *INTERNAL}
    for key in given:
        if key not in known:
            why = "Salt's client knows it, and it has no meaning here" if key in UNUSED else "arguments go under args"
            tell(f"{key} of {word} is not used: {why}", "warning")
    return tgt, cast("TypedKind", kind)


def _returners(word: str, said: Any) -> list[str]:
    """Where the returns are sent as well: a text with commas, or a list."""
    listed = said.split(",") if isinstance(said, str) else [] if said is None else said
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise _Wrong(f"ret of {word} is the name of a returner, or a list of them, and here {_kind(said)}")
    return [each.strip() for each in listed if each.strip()]


def _arguments(kind: Kind, word: str, given: Mapping[str, Any], tell: Tell) -> tuple[list[Any], dict[str, Any]]:
    if "args" in given:
        if "arg" in given or "kwarg" in given:
            tell(f"arg and kwarg of {word} are ignored beside args", "warning")
        args = given["args"]
        if (named := _named(args)) is not None:
            return [], named
        if kind == "caller" and isinstance(args, list):
            return args, {}
        raise _Wrong(f"args of {word} is a mapping, or a list of names with their values, and here {_kind(args)}")
    arg = given.get("arg")
    listed = [] if arg is None else arg if isinstance(arg, list) else [arg]
    kwarg = _named(given.get("kwarg"))
    if kwarg is None:
        raise _Wrong(f"kwarg of {word} is a mapping, and here {_kind(given['kwarg'])}")
    if kind in ("runner", "wheel"):
        direct = {key: value for key, value in given.items() if key not in {"arg", "kwarg", *INTERNAL}}
        kwarg = {**direct, **kwarg}
    return listed, kwarg


def _named(said: Any) -> dict[str, Any] | None:
    """A mapping, or a list of mappings, as one; None for anything else."""
    if said is None or said == []:
        return {}
    if isinstance(said, dict):
        return {str(key): value for key, value in said.items()}
    if isinstance(said, list) and all(isinstance(item, dict) for item in said):
        return {str(key): value for item in said for key, value in item.items()}
    return None


def _sorted(found: Sequence[_Placed], order: Order) -> list[Reaction]:
    """By ``order`` where it is given; those without come after, by type, id and function, or as they are written."""
    free = FIRST_FREE
    for _, wanted, _ in found:
        if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= free:
            free = wanted + GAP
    placed = [
        (_place(wanted, free) + _among(wanted, one), _as_salt(reaction), number, reaction)
        for number, (reaction, wanted, one) in enumerate(found)
    ]
    placed.sort(key=lambda each: (each[0], each[1] if order == "type" else "", each[2]))
    return list(_numbered(reaction for *_, reaction in placed))


def _place(wanted: Any, free: int) -> float:
    match wanted:
        case "first":
            return 0
        case "last":
            return free + BEHIND_ALL
        case bool() | None:
            return free
        case int() | float():
            return wanted if wanted >= 0 else free + BEHIND_ALL + wanted
        case _:
            return free


def _among(wanted: Any, number: int) -> float:
    """Of several names with an order that is given, the one that stands first comes first; Salt sorts the others."""
    return 0.0 if wanted is None else number / NAMES_IN_ORDER


def _as_salt(reaction: Reaction) -> str:
    return reaction.said.partition(".")[0] + (reaction.name or reaction.id) + reaction.fun


def _numbered(reactions: Iterable[Reaction]) -> Iterator[Reaction]:
    for number, reaction in enumerate(reactions):
        yield replace(reaction, order=number)


def _kind(value: Any) -> str:
    match value:
        case dict():
            return "is a mapping"
        case list():
            return "is a list of other things"
        case None:
            return "is nothing"
        case _:
            return f"is {str(value)[:80]!r}"
