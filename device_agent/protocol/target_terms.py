"""Single terms of a target: an id by glob, list, regular expression or range; a grain by glob or regular expression; an
address. Each says what is wrong with it, where, and how to mend it; and of a device that it means, why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from device_agent.errors import UsageInvalid
from device_agent.protocol.addresses import compile_addresses
from device_agent.protocol.globs import compile_glob
from device_agent.protocol.grain_match import compile_grain, value_at
from device_agent.protocol.patterns import Unreadable, compile_pattern
from device_agent.protocol.ranges import NotARange, compile_range

PATTERN_CHARACTERS = 1024
"""Longest glob, regular expression, range or grain expression; a list may be as long as a target."""

GRAIN_PARTS = 16
"""Most parts of a grain expression."""

WORDS_CHARACTERS = 256
"""How much of a term is repeated to say why it was true."""

Grains = Mapping[str, Any]
Matcher = Callable[[str, Grains], bool]


class Known(dict[str, Any]):
    """Grains, and with them what targets by pillar ask for; of grains alone they mean nobody."""

    def __init__(self, grains: Grains, pillar: Mapping[Any, Any]) -> None:
        super().__init__(grains)
        self.pillar = pillar


@dataclass(frozen=True, slots=True)
class Because:
    """A term that was true of a device, and what of the device made it so: its id, a grain's value, an address."""

    term: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Term:
    """A target, or a part of one, ready to be held against devices."""

    words: str
    test: Matcher
    why: Callable[[str, Grains], list[Because]]
    """Of a device that it means: which terms were true. Of a single term in any case, with what there is to show."""
    needs_pillar: bool = False
    """Whether it asks for pillar, so that grains alone do not tell whom it means."""


def any_of(parts: Sequence[Term]) -> Term:
    """What any of these means."""
    if len(parts) == 1:
        return parts[0]
    tests = [part.test for part in parts]
    return Term(
        _short(" or ".join(part.words for part in parts)),
        lambda device_id, grains: any(test(device_id, grains) for test in tests),
        lambda device_id, grains: [
            because for part in parts if part.test(device_id, grains) for because in part.why(device_id, grains)
        ],
        any(part.needs_pillar for part in parts),
    )


def all_of(parts: Sequence[Term]) -> Term:
    """What all of these mean."""
    if len(parts) == 1:
        return parts[0]
    tests = [part.test for part in parts]
    return Term(
        _short(" and ".join(part.words for part in parts)),
        lambda device_id, grains: all(test(device_id, grains) for test in tests),
        lambda device_id, grains: [because for part in parts for because in part.why(device_id, grains)],
        any(part.needs_pillar for part in parts),
    )


def none_of(part: Term) -> Term:
    """What this does not mean."""
    test, words = part.test, f"not {part.words}"

    def why(device_id: str, grains: Grains) -> list[Because]:
        # Of a group there is not one value to show.
        return [Because(words, None if part.words.startswith("( ") else part.why(device_id, grains)[0].value)]

    return Term(words, lambda device_id, grains: not test(device_id, grains), why, part.needs_pillar)


def shown(text: str) -> str:
    """A piece of a target, for people."""
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}… ({len(text)} characters)"


def glob_term(pattern: str, where: str) -> Term:
    """Ids by a glob."""
    _bounded(pattern, where, "a glob")
    return _of_ids(pattern, compile_glob(pattern))


def list_term(text: str, where: str) -> Term:
    """These ids."""
    ids = frozenset(name for name in map(str.strip, text.split(",")) if name)
    if not ids:
        raise UsageInvalid(
            "a list target names no device", where=where, found=shown(text), allowed="ids with commas between"
        )
    return _of_ids(_short(f"L@{text}"), ids.__contains__)


def pcre_term(pattern: str, where: str) -> Term:
    """Ids by a regular expression."""
    _bounded(pattern, where, "a regular expression")
    return _of_ids(f"E@{pattern}", _compiled(pattern, where))


def range_term(text: str, where: str) -> Term:
    """Ids, or full host names, by a range."""
    _bounded(text, where, "a range")
    try:
        test = compile_range(text)
    except NotARange as error:
        raise UsageInvalid(
            f"a range cannot be read: {error}",
            where=where,
            found=shown(text),
            allowed="names with [1-20], 1..20 or {a,b} in them, joined with A,B (or), A,-B (but not) and A,&B (both)",
            hint="%NAME stands for the nodegroup NAME of the station where it is typed",
        ) from None

    def matches(device_id: str, grains: Grains) -> bool:
        if test(device_id):
            return True
        fqdn = grains.get("fqdn")
        return isinstance(fqdn, str) and test(fqdn)

    def why(device_id: str, grains: Grains) -> list[Because]:
        return [
            Because(f"R@{text}", grains["fqdn"] if matches(device_id, grains) and not test(device_id) else device_id)
        ]

    return Term(f"R@{text}", matches, why)


def address_term(text: str, where: str) -> Term:
    """Devices with this address, or one in this network."""
    _bounded(text, where, "an address")
    try:
        found = compile_addresses(text)
    except ValueError as error:
        raise UsageInvalid(
            f"this is no address and no network: {error}",
            where=where,
            found=shown(text),
            allowed="192.0.2.7, 192.0.2.0/24, 2001:db8::7, 2001:db8::/32",
            hint="a network has no host bits: 192.0.2.0/24, and not 192.0.2.7/24"
            if "host bits" in str(error)
            else None,
        ) from None
    return Term(
        f"S@{text}",
        lambda _device_id, grains: bool(found(grains)),
        lambda _device_id, grains: [Because(f"S@{text}", ", ".join(found(grains)) or None)],
    )


def grain_term(expression: str, where: str, delimiter: str = ":") -> Term:
    """Devices with a grain of this value, by glob."""
    _check_grain(expression, where, delimiter, "glob")
    return _of_grains("G", expression, delimiter, compile_grain(expression, delimiter))


def grain_pattern_term(expression: str, where: str, delimiter: str = ":") -> Term:
    """Devices with a grain of this value, by regular expression."""
    return _of_grains("P", expression, delimiter, _pattern_test(expression, where, delimiter))


def _pattern_test(expression: str, where: str, delimiter: str) -> Callable[[Grains], bool]:
    _check_grain(expression, where, delimiter, "regular-expression")
    readable = 0

    def compiled(pattern: str) -> Callable[[str], bool]:
        nonlocal readable
        # An expression may hold the delimiter: cut there, it need not be one.
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError, ValueError):
            return lambda _text: False
        readable += 1
        return _compiled(pattern, where, ignore_case=True)

    test = compile_grain(expression, delimiter, compiled)
    if not readable:
        _compiled(expression.partition(delimiter)[2], where, ignore_case=True)
    return test


def pillar_term(expression: str, where: str, delimiter: str = ":") -> Term:
    """Devices whose pillar has this value, by glob."""
    _check_grain(expression, where, delimiter, "glob")
    return _of_pillar("I", expression, delimiter, compile_grain(expression, delimiter))


def pillar_exact_term(expression: str, where: str, delimiter: str = ":") -> Term:
    """Devices whose pillar has exactly this value."""
    _check_grain(expression, where, delimiter, "value")
    return _of_pillar("I", expression, delimiter, compile_grain(expression, delimiter, _exactly))


def pillar_pattern_term(expression: str, where: str, delimiter: str = ":") -> Term:
    """Devices whose pillar has a value by regular expression."""
    return _of_pillar("J", expression, delimiter, _pattern_test(expression, where, delimiter))


def _exactly(value: str) -> Callable[[str], bool]:
    wanted = value.lower()
    return lambda text: text == wanted


def _of_pillar(letter: str, expression: str, delimiter: str, test: Callable[[Grains], bool]) -> Term:
    words = f"{letter}{'' if delimiter == ':' else delimiter}@{expression}"
    # What is there is secret: that the term was true is all that is said.
    return Term(
        words,
        lambda _device_id, grains: isinstance(grains, Known) and test(grains.pillar),
        lambda _device_id, _grains: [Because(words)],
        needs_pillar=True,
    )


def _short(words: str) -> str:
    return words if len(words) <= WORDS_CHARACTERS else f"{words[:WORDS_CHARACTERS]}…"


def _of_ids(words: str, test: Callable[[str], bool]) -> Term:
    return Term(
        words, lambda device_id, _grains: test(device_id), lambda device_id, _grains: [Because(words, device_id)]
    )


def _of_grains(letter: str, expression: str, delimiter: str, test: Callable[[Grains], bool]) -> Term:
    words = f"{letter}{'' if delimiter == ':' else delimiter}@{expression}"
    return Term(
        words,
        lambda _device_id, grains: test(grains),
        lambda _device_id, grains: [Because(words, value_at(grains, expression, delimiter))],
    )


def _compiled(pattern: str, where: str, *, ignore_case: bool = False) -> Callable[[str], bool]:
    try:
        return compile_pattern(pattern, ignore_case=ignore_case)
    except Unreadable as error:
        raise UsageInvalid(
            f"a regular expression could take for ever: {error}",
            where=where,
            found=shown(pattern),
            allowed="fewer repeats beside a look around or a back reference, and repeats counted to little",
            hint="a glob, a list or several terms joined with and, or, not may say the same",
        ) from None
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise UsageInvalid(
            f"a regular expression does not compile: {error}",
            where=where,
            found=shown(pattern),
            allowed="a regular expression in Python's syntax",
        ) from None


def _check_grain(expression: str, where: str, delimiter: str, kind: str) -> None:
    _bounded(expression, where, "a grain target")
    parts = expression.count(delimiter) + 1
    if parts == 1:
        every = "*" if kind == "glob" else ".*"
        raise UsageInvalid(
            "a grain target has no value",
            where=where,
            found=shown(expression),
            allowed=f"key{delimiter}{kind}",
            hint=f"{expression}{delimiter}{every} means every device that has this grain",
        )
    if parts > GRAIN_PARTS:
        raise UsageInvalid(
            "a grain target has too many parts", where=where, found=f"{parts} parts", allowed=f"at most {GRAIN_PARTS}"
        )


def _bounded(pattern: str, where: str, what: str) -> None:
    if not pattern.strip():
        raise UsageInvalid(
            f"{what} is empty", where=where, found=shown(pattern), allowed=f"1 to {PATTERN_CHARACTERS} characters"
        )
    if len(pattern) > PATTERN_CHARACTERS:
        raise UsageInvalid(
            f"{what} is too long",
            where=where,
            found=f"{len(pattern)} characters",
            allowed=f"at most {PATTERN_CHARACTERS}",
            hint="name many devices with a list, or by a grain they share",
        )
