r"""Which devices a job is for, in Salt's words. Stations choose with it; each device checks with it that it is meant.

    glob      cam-*                          fnmatch on the id
    list      cam-1,cam-2                    exactly these ids
    pcre      cam-(1|2)\d                     a Python regular expression, anchored at the start of the id only
    grain     os:Debian                      key:glob, nested with more ':'; see ``grain_match``
    compound  G@os:Debian and not cam-1*     G@ grain, E@ pcre, L@ list, a bare word is a glob; and, or, not, ( )

Source: https://docs.saltproject.io/en/latest/topics/targeting/compound.html. Where Salt quietly matches nothing,
because a compound does not parse or an engine is missing, this raises and says what was wrong.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from device_agent.errors import UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.globs import compile_glob
from device_agent.protocol.grain_match import compile_grain
from device_agent.protocol.messages import TargetType

PATTERN_CHARACTERS = 1024
"""Longest glob, regular expression or grain expression; a list may be as long as a target."""

GRAIN_PARTS = 16
NESTING = 32
"""Most parts of a grain expression, and deepest parentheses of a compound."""

OPERATORS = frozenset({"and", "or", "not", "(", ")"})
ENGINES = {"G": "grain", "E": "pcre", "L": "list"}
ENGINES_NOT_YET = {
    "P": "grains by regular expression",
    "I": "pillar",
    "J": "pillar by regular expression",
    "S": "subnets",
    "R": "ranges",
    "N": "nodegroups",
}
ENGINES_ALLOWED = "G@key:glob, E@regular-expression, L@id,id or a bare glob"

# In the engines that cut keys, one character before the @ is the delimiter instead of ':', as in G|@key|value.
_term = re.compile(r"(?:([GPIJ])(.?)|([LNSER])())@(.*)", re.DOTALL)

Matcher = Callable[[str, Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Target:
    """A target that parsed."""

    tgt: str
    tgt_type: TargetType
    _matcher: Matcher

    def matches(self, device_id: str, grains: Mapping[str, Any]) -> bool:
        """Whether this device is meant. Never raises, whatever the grains hold."""
        return self._matcher(device_id, grains)


def compile_target(tgt: str, tgt_type: TargetType) -> Target:
    """A target ready to be held against many devices. Raises ``UsageInvalid``, naming the term that is wrong.

    Bounded: length, terms, nesting, and the length of each pattern. Not bounded is the time a regular expression with
    nested repetition, such as ``(a+)+$``, takes on one id: ids have at most 128 characters, but that can be for ever.
    Whoever may send a job may also run commands, so this guards against accidents of size and not against the sender.
    """
    if tgt_type not in get_args(TargetType):
        raise UsageInvalid(
            "there is no such kind of target",
            where="tgt_type",
            found=_shown(tgt_type),
            allowed=", ".join(get_args(TargetType)),
        )
    if len(tgt) > limits.TARGET_CHARACTERS:
        raise UsageInvalid(
            "the target is too long",
            where="tgt",
            found=f"{len(tgt)} characters",
            allowed=f"at most {limits.TARGET_CHARACTERS}",
            hint="split the job, or use a glob or a grain",
        )
    return _compile_short(tgt, tgt_type) if len(tgt) <= PATTERN_CHARACTERS else _compile_long(tgt, tgt_type)


def _compile(tgt: str, tgt_type: TargetType) -> Target:
    compilers: dict[str, Callable[[str, str], Matcher]] = {
        "glob": _glob,
        "list": _list,
        "pcre": _pcre,
        "grain": _grain,
        "compound": lambda text, _where: _Compound(text).matcher(),
    }
    return Target(tgt, tgt_type, compilers[tgt_type](tgt, "tgt"))


# Ten thousand devices in one process check the same target. Long ones hold thousands of ids, so few of them are kept.
_compile_short = lru_cache(maxsize=64)(_compile)
_compile_long = lru_cache(maxsize=2)(_compile)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}… ({len(text)} characters)"


def _bounded(pattern: str, where: str, what: str) -> None:
    if not pattern.strip():
        raise UsageInvalid(
            f"{what} is empty", where=where, found=_shown(pattern), allowed=f"1 to {PATTERN_CHARACTERS} characters"
        )
    if len(pattern) > PATTERN_CHARACTERS:
        raise UsageInvalid(
            f"{what} is too long",
            where=where,
            found=f"{len(pattern)} characters",
            allowed=f"at most {PATTERN_CHARACTERS}",
            hint="name many devices with a list, or by a grain they share",
        )


def _glob(pattern: str, where: str) -> Matcher:
    _bounded(pattern, where, "a glob")
    test = compile_glob(pattern)
    return lambda device_id, _grains: test(device_id)


def _list(text: str, where: str) -> Matcher:
    ids = frozenset(name for name in map(str.strip, text.split(",")) if name)
    if not ids:
        raise UsageInvalid(
            "a list target names no device", where=where, found=_shown(text), allowed="ids with commas between"
        )
    return lambda device_id, _grains: device_id in ids


def _pcre(pattern: str, where: str) -> Matcher:
    _bounded(pattern, where, "a regular expression")
    try:
        with warnings.catch_warnings():
            # What may mean something else in a later Python is no news to whoever sent it.
            warnings.simplefilter("ignore")
            match = re.compile(pattern).match
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise UsageInvalid(
            f"a regular expression does not compile: {error}",
            where=where,
            found=_shown(pattern),
            allowed="a regular expression in Python's syntax",
        ) from None
    return lambda device_id, _grains: match(device_id) is not None


def _grain(expression: str, where: str, delimiter: str = ":") -> Matcher:
    _bounded(expression, where, "a grain target")
    parts = expression.count(delimiter) + 1
    if parts == 1:
        raise UsageInvalid(
            "a grain target has no value",
            where=where,
            found=_shown(expression),
            allowed=f"key{delimiter}glob",
            hint=f"{expression}{delimiter}* means every device that has this grain",
        )
    if parts > GRAIN_PARTS:
        raise UsageInvalid(
            "a grain target has too many parts", where=where, found=f"{parts} parts", allowed=f"at most {GRAIN_PARTS}"
        )
    test = compile_grain(expression, delimiter)
    return lambda _device_id, grains: test(grains)


class _Compound:
    """A recursive-descent parser with Python's precedence, which Salt's has too: ``not`` before ``and`` before ``or``.

    As in Salt, words are what stands between spaces, and a ``not`` after a term means ``and not``.
    """

    def __init__(self, text: str) -> None:
        self._words = text.split()
        self._at = 0
        self._terms = 0
        self._depth = 0

    def matcher(self) -> Matcher:
        """Parse all of it."""
        if not self._words:
            raise self._wrong("a compound target is empty", allowed=ENGINES_ALLOWED)
        whole = self._any_of()
        word = self._next()
        if word is None:
            return whole
        if word == ")":
            raise self._wrong("a parenthesis closes that was not opened", allowed="and, or, not, or the end")
        hint = f"operators are written small: {word.lower()}" if word.lower() in OPERATORS else None
        raise self._wrong("an operator is missing before this word", allowed="and, or, not, or the end", hint=hint)

    def _any_of(self) -> Matcher:
        choices = [self._all_of()]
        while self._next() == "or":
            self._at += 1
            choices.append(self._all_of())
        if len(choices) == 1:
            return choices[0]
        return lambda device_id, grains: any(choice(device_id, grains) for choice in choices)

    def _all_of(self) -> Matcher:
        needs = [self._one()]
        while (word := self._next()) in ("and", "not"):
            if word == "and":
                self._at += 1
            needs.append(self._one())
        if len(needs) == 1:
            return needs[0]
        return lambda device_id, grains: all(need(device_id, grains) for need in needs)

    def _one(self) -> Matcher:
        if self._next() != "not":
            return self._group_or_term()
        self._at += 1
        inner = self._group_or_term()
        return lambda device_id, grains: not inner(device_id, grains)

    def _group_or_term(self) -> Matcher:
        word = self._next()
        if word == "(":
            return self._group()
        if word is None or word in OPERATORS:
            raise self._wrong("a term is missing", allowed=f"{ENGINES_ALLOWED}, or ( … )")
        matcher = self._term(word)
        self._at += 1
        return matcher

    def _group(self) -> Matcher:
        self._depth += 1
        if self._depth > NESTING:
            raise self._wrong("parentheses nest too deep", allowed=f"at most {NESTING} deep")
        opened = self._at
        self._at += 1
        inner = self._any_of()
        if self._next() != ")":
            raise self._wrong(
                f"the parenthesis of word {opened + 1} is not closed",
                allowed="and, or, not or )",
                hint="parentheses need spaces around them: ( cam-1 or cam-2 )",
            )
        self._at += 1
        self._depth -= 1
        return inner

    def _term(self, word: str) -> Matcher:
        self._terms += 1
        if self._terms > limits.TARGET_TERMS:
            raise self._wrong("a compound target has too many terms", allowed=f"at most {limits.TARGET_TERMS}")
        if (parsed := _term.match(word)) is None:
            if word.startswith("(") or word.endswith(")"):
                raise self._wrong(
                    "a parenthesis touches a word",
                    allowed=ENGINES_ALLOWED,
                    hint="parentheses need spaces around them: ( cam-1 or cam-2 )",
                )
            return _glob(word, self._where())
        engine, pattern = parsed[1] or parsed[3], parsed[5]
        if engine in ENGINES_NOT_YET:
            raise self._wrong(
                f"{engine}@ ({ENGINES_NOT_YET[engine]}) is not available in this release", allowed=ENGINES_ALLOWED
            )
        if engine == "G":
            return _grain(pattern, self._where(), parsed[2] or ":")
        return _list(pattern, self._where()) if engine == "L" else _pcre(pattern, self._where())

    def _next(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def _where(self) -> str:
        return f"word {self._at + 1} of the target"

    def _wrong(self, what: str, *, allowed: str, hint: str | None = None) -> UsageInvalid:
        word = self._next()
        return UsageInvalid(
            what, where=self._where(), found="the end" if word is None else _shown(word), allowed=allowed, hint=hint
        )
