"""The parts of a regular expression in Python's syntax, as far as they matter for how long it takes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

TEXT_CHARACTERS = 128
"""How long a text is taken to be, where the work depends on it: as long as the longest id."""

NESTING = 32
COUNT = 1000
"""Highest count of a repeat."""

_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE | re.ASCII
_letters = {"i": re.IGNORECASE, "s": re.DOTALL, "m": re.MULTILINE, "a": re.ASCII, "u": re.NOFLAG}
_braces = re.compile(r"\{(?!\})(\d*)(,?)(\d*)\}")
_scoped = re.compile(r"\?([aiLmsux]*)(?:-([imsx]+))?:")
_named = re.compile(r"\?P<\w+>")
_escape = re.compile(r"\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|0[0-7]{0,2}|[1-3][0-7]{2}|[1-9][0-9]?|.)", re.DOTALL)
_class = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_comment = re.compile(r"\(\?#[^)]*\)")
_global_flags = re.compile(r"\(\?[aiLmsux]+\)")


class Unreadable(ValueError):
    """This expression has something that is not followed here."""


@dataclass(frozen=True, slots=True)
class Character:
    """One character that passes the test."""

    test: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Border:
    """A place between characters: ``^ $ A Z b B``, the last four behind a backslash."""

    kind: str
    flags: int


@dataclass(frozen=True, slots=True)
class InOrder:
    """One after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Any of these."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """From ``least`` to ``most`` times; None is without end."""

    part: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What ``re`` decides once and does not come back to: a look around, an atomic group, a back reference."""

    part: Node


Node = Character | Border | InOrder | OneOf | Repeat | Settled


def read_tree(pattern: str, flags: int) -> Node:
    """The parts of an expression that ``re`` has taken with these flags. Raises ``Unreadable``."""
    return _Reading(pattern, flags).whole()


class _Reading:
    """Reads an expression that ``re`` has taken, so that what is wrong with it need not be said here."""

    def __init__(self, pattern: str, flags: int) -> None:
        if flags & (re.VERBOSE | re.LOCALE):
            raise Unreadable("the flags x and L are not taken")
        self._pattern = pattern
        self._flags = flags & _FLAGS
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        tree = self._one_of(self._flags)
        if self._at < len(self._pattern):
            raise Unreadable(f"not understood from character {self._at + 1} on")
        return tree

    def _one_of(self, flags: int) -> Node:
        self._depth += 1
        if self._depth > NESTING:
            raise Unreadable(f"groups nest deeper than {NESTING}")
        choices = [self._in_order(flags)]
        while self._here("|"):
            self._at += 1
            choices.append(self._in_order(flags))
        self._depth -= 1
        return choices[0] if len(choices) == 1 else OneOf(tuple(choices))

    def _in_order(self, flags: int) -> Node:
        parts: list[Node] = []
        while self._at < len(self._pattern) and not self._here("|") and not self._here(")"):
            part = self._part(flags)
            if part is not None:
                parts.append(self._repeated(part))
        return InOrder(tuple(parts))

    def _part(self, flags: int) -> Node | None:
        if self._took(_comment) or self._took(_global_flags):
            return None
        character = self._pattern[self._at]
        if character == "(":
            return self._group(flags)
        if character == "[":
            return self._one(self._took(_class) or "", flags)
        if character == "\\":
            return self._escaped(self._took(_escape) or "", flags)
        self._at += 1
        if character in "^$":
            return Border(character, flags)
        return self._one(character if character == "." else re.escape(character), flags)

    def _escaped(self, words: str, flags: int) -> Node:
        if words[1:] in {"b", "B", "A", "Z", "z"}:
            return Border(words[1:], flags)
        if words[1] in "123456789" and len(words) < 4:
            # As long as the text it repeats: of that there is one way.
            return Settled(Repeat(Character(bool), TEXT_CHARACTERS, TEXT_CHARACTERS))
        return self._one(words, flags)

    @staticmethod
    def _one(words: str, flags: int) -> Node:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Character(re.compile(words, flags).fullmatch)
        except re.error as error:
            raise Unreadable(f"{words!r} is not understood by itself: {error}") from None

    def _group(self, flags: int) -> Node:
        self._at += 1
        settled = False
        if self._here("?"):
            if found := _scoped.match(self._pattern, self._at):
                flags = self._scoped_flags(found, flags)
                self._at = found.end()
            elif not self._took(_named):
                settled = True
                opening = next((word for word in ("?=", "?!", "?<=", "?<!", "?>") if self._here(word)), "")
                if not opening and self._here("?P="):
                    self._at = self._pattern.index(")", self._at) + 1
                    return Settled(Repeat(Character(bool), TEXT_CHARACTERS, TEXT_CHARACTERS))
                if not opening:
                    raise Unreadable("a condition on a group, (?(…)…), is not taken")
                self._at += len(opening)
        inner = self._one_of(flags)
        self._at += 1
        return Settled(inner) if settled else inner

    @staticmethod
    def _scoped_flags(found: re.Match[str], flags: int) -> int:
        if set(found[1] + (found[2] or "")) - _letters.keys():
            raise Unreadable("the flags x and L are not taken")
        for letter in found[1]:
            flags |= _letters[letter]
        for letter in found[2] or "":
            flags &= ~_letters[letter]
        return flags & ~re.ASCII if "u" in found[1] else flags

    def _repeated(self, part: Node) -> Node:
        if self._at >= len(self._pattern):
            return part
        character = self._pattern[self._at]
        times: tuple[int, int | None] | None = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(character)
        if times is not None:
            self._at += 1
        elif found := _braces.match(self._pattern, self._at):
            self._at = found.end()
            times = _counts(found)
        else:
            return part
        repeat: Node = Repeat(part, *times)
        if self._here("?") or self._here("+"):
            self._at += 1
            if self._pattern[self._at - 1] == "+":
                repeat = Settled(repeat)
        return repeat

    def _here(self, words: str) -> bool:
        return self._pattern.startswith(words, self._at)

    def _took(self, shape: re.Pattern[str]) -> str | None:
        found = shape.match(self._pattern, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]


def _counts(braces: re.Match[str]) -> tuple[int, int | None]:
    words = braces[3] if braces[2] else braces[1]
    if max(len(braces[1]), len(words)) > 9 or max(int(braces[1] or 0), int(words or 0)) > COUNT:
        raise Unreadable(f"a repeat is counted to more than {COUNT}")
    return int(braces[1] or 0), int(words) if words else None
