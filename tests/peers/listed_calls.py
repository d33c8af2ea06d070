"""Every call that the pages show, and every argument that a function lists, in each form that it lists."""

from __future__ import annotations

import inspect
import re
import shlex
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from msgspec import Meta

from device_agent import loader
from device_agent.trust.reach import MODULES
from gateway.typed_arguments import split_arguments
from tests.house.tree import ROOT

COMMAND: Final = re.compile(r"outstation run ([^\n`]*(?:\\\n[^\n`]*)*)")
VALUED: Final = frozenset({"--why", "--return", "--late", "--expires", "--limit", "--batch", "--subset"})
FUNCTION: Final = re.compile(r"[a-z_]+\.[a-z0-9_]+")
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


def shown_calls() -> list[Shown]:
    """The commands of the documentation, the README and the docstrings, read as the command line reads them."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in _pages()}
    texts |= {name: inspect.getdoc(loader.find(name)) or "" for name in loader.names()}
    return [call for where, text in texts.items() for line in COMMAND.findall(text) for call in _call(where, line)]


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


def _call(where: str, line: str) -> Iterator[Shown]:
    """The call that a command makes; nothing for a form such as ``TARGET FUNCTION [ARG…]``, or several functions."""
    try:
        words = shlex.split(line.replace("\\\n", " "), comments=True)
    except ValueError:
        # A line of a page that goes on in the next one, inside quotes.
        return
    words = words[: next((at for at, word in enumerate(words) if word in ENDS), len(words))]
    plain = [word for at, word in enumerate(words) if not word.startswith("--") and words[at - 1 : at] not in _VALUED]
    at = next((at for at, word in enumerate(plain) if FUNCTION.fullmatch(word)), None)
    if at is None or plain[at].partition(".")[0] not in MODULES:
        return
    arg, kwarg = split_arguments(plain[at + 1 :] + ["x"] * ("--args-stdin" in words))
    yield Shown(where, plain[at], arg, kwarg)


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
