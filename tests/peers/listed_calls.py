"""Every call that the pages show, and every argument that a function lists, in each form that it lists."""

from __future__ import annotations

import inspect
import re
import shlex
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from msgspec import Meta

from device_agent import loader
from device_agent.trust.reach import MODULES
from gateway.typed_arguments import split_arguments
from tests.house.tree import ROOT

BEGIN: Final = "outstation run "
LINES: Final = 4
"""Most lines of a command: a line that ends in a backslash, or inside quotes, goes on in the next one."""

FORMS: Final = (["TARGET", "FUNCTION"], ["--help"])
"""Words with which a command begins that shows how to write one, and calls nothing."""

BROUGHT: Final = frozenset({"door.status"})
"""The function of the module that a site brings itself in docs/modules.md."""
VALUED: Final = frozenset({"--why", "--return", "--late", "--expires", "--limit", "--batch", "--subset"})
FUNCTIONS: Final = re.compile(r"[a-z_]+\.[a-z0-9_]+(,[a-z_]+\.[a-z0-9_]+)*")
WAITS: Final = frozenset({"test.rand_sleep max", "ps.top interval", "ps.cpu_percent interval", "system.reboot wait"})
"""Arguments without which a function waits."""

ENDS: Final = frozenset({"<", ">", "|", "&&", ";"})
SAMPLES: Final[dict[Any, list[Any]]] = {
    str: ["x"],
    int: [1],
    float: [0.01],
    bool: [True, False],
    type(None): [None],
    bytes: [b"x"],
    Any: ["x", 1, ["x"], {"a": "b"}, None],
}
"""Values of each type that an argument lists."""


class Shown(NamedTuple):
    """One call, and where it stands."""

    where: str
    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.where}: {self.fun} {self.arg} {self.kwarg}"


class Commands(NamedTuple):
    """What the commands of the pages call."""

    calls: list[Shown]
    unread: list[str]
    """Commands in which no function was found, with where they stand."""


def shown_calls() -> Commands:
    """The commands of the documentation, the README and the docstrings, read as the command line reads them."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in _pages()}
    texts |= {name: inspect.getdoc(loader.find(name)) or "" for name in loader.names()}
    return calls_in(texts)


def calls_in(texts: Mapping[str, str]) -> Commands:
    """The calls of every command in these texts, which are named by where they stand."""
    found = Commands([], [])
    for where, text in texts.items():
        for begin in re.finditer(BEGIN, text):
            words = _words(text[begin.end() :])
            calls = None if words is None else _calls(where, words)
            if calls is None:
                found.unread.append(f"{where}: {BEGIN}{text[begin.end() :].partition(chr(10))[0]}")
            else:
                found.calls.extend(calls)
    return found


def listed_calls(fun: str) -> Iterator[Shown]:
    """One call for each argument of a function and each form that its annotation lists, beside what it needs."""
    parameters = loader.signature(fun).parameters.values()
    needed = {
        each.name: _samples(each.annotation)[0]
        for each in parameters
        if (each.default is each.empty or f"{fun} {each.name}" in WAITS)
        and each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}
    }
    yield Shown("", fun, [], needed)
    for each in parameters:
        for value in _samples(each.annotation):
            if each.kind is each.VAR_POSITIONAL:
                yield Shown(each.name, fun, [*needed.values(), value], {})
            else:
                name = "x" if each.kind is each.VAR_KEYWORD else each.name
                yield Shown(each.name, fun, [], {**needed, name: value})


def _pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _words(text: str) -> list[str] | None:
    """The words of the command with which a text begins; None where its quotes do not close."""
    lines: list[str] = []
    for line in text.split("\n", LINES)[:LINES]:
        lines.append(line.partition("`")[0])
        if lines[-1].endswith("\\") and lines[-1] == line:
            continue
        try:
            words = shlex.split("\n".join(lines).replace("\\\n", " "), comments=True)
        except ValueError:
            continue
        return words[: next((at for at, word in enumerate(words) if word in ENDS), len(words))]
    return None


def _calls(where: str, words: list[str]) -> list[Shown] | None:
    """What a command calls; None where that cannot be told."""
    if any(words[: len(form)] == form for form in FORMS):
        return []
    plain = [word for at, word in enumerate(words) if not word.startswith("--") and words[at - 1 : at] not in _VALUED]
    at = next((at for at, word in enumerate(plain) if FUNCTIONS.fullmatch(word)), None)
    if at is None:
        return None
    names = plain[at].split(",")
    given: list[list[str]] = [[]]
    for word in plain[at + 1 :] + ["x"] * ("--args-stdin" in words):
        if word == "," and len(names) > 1:
            given.append([])
        else:
            given[-1].append(word)
    given += [[]] * (len(names) - len(given))
    if len(given) != len(names) or any(name.partition(".")[0] not in MODULES for name in names if name not in BROUGHT):
        return None
    return [
        Shown(where, name, *split_arguments(each))
        for name, each in zip(names, given, strict=True)
        if name not in BROUGHT
    ]


_VALUED: Final = [[word] for word in VALUED]


def _samples(annotation: Any) -> list[Any]:
    """Values of every form that an annotation lists."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return [_within(value, inner[1]) for value in _samples(inner[0])]
    if origin in {Union, types.UnionType}:
        return [value for each in inner for value in _samples(each)]
    if origin is Literal:
        return list(inner)
    if origin is list or annotation is list:
        return [[value] for value in (_samples(inner[0]) if inner else ["x"])]
    if origin is dict or annotation is dict:
        return [{"a": value} for value in (_samples(inner[1]) if inner else ["x"])]
    return SAMPLES[annotation]


def _within(value: Any, bounds: Meta) -> Any:
    """The value, or the nearest one that keeps to the bounds of an annotation."""
    if isinstance(value, str) and (bounds.pattern or "").startswith("^/"):
        return f"/{value}"
    return value if bounds.ge is None else max(value, bounds.ge)
