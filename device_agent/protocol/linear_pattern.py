"""A regular expression as a machine that is in many places at once: each character of a text is read once.

What it found out about a set of places and a character is kept, so that ten thousand names cost little more than one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from device_agent.protocol.pattern_tree import Border, Character, InOrder, Node, OneOf, Repeat, Settled, Unreadable

PLACES = 128
"""Most places of a machine; repeats with a count are as many copies."""

KEPT = 4096
FOUND, NOWHERE = -1, -2
_END = ""
_LAST_LINE = "\n$"


@dataclass(frozen=True, slots=True)
class _Reads:
    test: Callable[[str], object]
    then: int


@dataclass(frozen=True, slots=True)
class _Forks:
    ways: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Stands:
    border: Border
    then: int


class _Union:
    """For a set of places, as the bits of a number, all that they lead to; eight places at a time are kept."""

    def __init__(self, leads: list[int]) -> None:
        self._leads = leads
        self._bytes = (len(leads) + 7) // 8
        self._kept: list[dict[int, int]] = [{} for _ in range(self._bytes)]

    def of(self, places: int) -> int:
        reached = 0
        for at, byte in enumerate(places.to_bytes(self._bytes, "little")):
            if byte:
                lead = self._kept[at].get(byte)
                reached |= self._look(at, byte) if lead is None else lead
        return reached

    def _look(self, at: int, byte: int) -> int:
        lead = 0
        for bit in range(8):
            if byte >> bit & 1:
                lead |= self._leads[8 * at + bit]
        self._kept[at][byte] = lead
        return lead


class LinearPattern:
    """One machine. Place 0 is the match. Raises ``Unreadable`` when there is no such machine for the expression."""

    def __init__(self, tree: Node) -> None:
        self._places: list[_Reads | _Forks | _Stands | None] = [None]
        self._built_parts = 0
        self._first = 1 << self._built(tree, 0)
        self._borders = list({place.border: None for place in self._places if isinstance(place, _Stands)})
        self._then = _Union([1 << place.then if isinstance(place, _Reads) else 0 for place in self._places])
        self._closed: dict[tuple[bool, ...], _Union] = {}
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._standing: list[tuple[int, str]] = []
        self._steps: dict[tuple[int, str], int] = {}
        self._readers: dict[str, int] = {}

    def match(self, text: str) -> bool:
        """Whether the text, from its first character on, has what is described. Never raises."""
        if len(self._steps) > KEPT:
            self._forget()
        state, steps = self._number(self._first, ""), self._steps
        symbols = [*text[:-1], _LAST_LINE] if text.endswith("\n") else [*text]
        symbols.append(_END)
        for symbol in symbols:
            following = steps.get((state, symbol))
            if following is None:
                following = steps[state, symbol] = self._step(state, symbol)
            if following < 0:
                return following == FOUND
            state = following
        return False

    def _number(self, places: int, before: str) -> int:
        key = (places, before)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._standing)
            self._standing.append(key)
        return number

    def _step(self, state: int, symbol: str) -> int:
        places, before = self._standing[state]
        standing = tuple(_stands(border, before, symbol) for border in self._borders)
        closed = self._closed.get(standing)
        if closed is None:
            closed = self._closed[standing] = self._closing(standing)
        reached = closed.of(places)
        if reached & 1:
            return FOUND
        if symbol == _END:
            return NOWHERE
        after = self._then.of(reached & self._reading(symbol[0]))
        return self._number(after, symbol[0]) if after else NOWHERE

    def _reading(self, character: str) -> int:
        """The places that go on with this character."""
        readers = self._readers.get(character)
        if readers is None:
            readers = self._readers[character] = sum(
                1 << at for at, place in enumerate(self._places) if isinstance(place, _Reads) and place.test(character)
            )
        return readers

    def _closing(self, standing: tuple[bool, ...]) -> _Union:
        """Where each place leads without a character, when these borders stand."""
        stands = {border for border, true in zip(self._borders, standing, strict=True) if true}
        return _Union([self._reached_from(start, stands) for start in range(len(self._places))])

    def _reached_from(self, start: int, stands: set[Border]) -> int:
        reached = 0
        waiting = [start]
        while waiting:
            number = waiting.pop()
            if reached >> number & 1:
                continue
            reached |= 1 << number
            place = self._places[number]
            if isinstance(place, _Forks):
                waiting.extend(place.ways)
            elif isinstance(place, _Stands) and place.border in stands:
                waiting.append(place.then)
        return reached

    def _put(self, place: _Reads | _Forks | _Stands | None) -> int:
        if len(self._places) >= PLACES:
            raise _too_large()
        self._places.append(place)
        return len(self._places) - 1

    def _built(self, node: Node, then: int) -> int:
        """The place where this starts, when it goes on at ``then``."""
        self._built_parts += 1
        if self._built_parts > 8 * PLACES:
            raise _too_large()
        match node:
            case Character(test):
                return self._put(_Reads(test, then))
            case Border():
                return self._put(_Stands(node, then))
            case InOrder(parts):
                for part in reversed(parts):
                    then = self._built(part, then)
                return then
            case OneOf(parts):
                return self._put(_Forks(tuple(self._built(part, then) for part in parts)))
            case Repeat(part, least, most):
                return self._repeated(part, least, most, then)
            case Settled():
                raise Unreadable("it can be read in too many ways, beside a look around or a back reference")

    def _repeated(self, part: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self._put(None)
            self._places[loop] = _Forks((self._built(part, loop), then))
            then = loop
        for _ in range(0 if most is None else most - least):
            then = self._put(_Forks((self._built(part, then), then)))
        for _ in range(least):
            then = self._built(part, then)
        return then


def _too_large() -> Unreadable:
    return Unreadable(f"it is too large once its counted repeats are written out: at most {PLACES} places")


def _stands(border: Border, before: str, symbol: str) -> bool:
    lines = bool(border.flags & re.MULTILINE)
    match border.kind:
        case "^":
            return not before or (lines and before == "\n")
        case "A":
            return not before
        case "$":
            return symbol in (_END, _LAST_LINE) or (lines and symbol == "\n")
        case "Z" | "z":
            return symbol == _END
        case _:
            if not before and symbol == _END:
                # To Python an empty text has no border, and no place beside one either.
                return False
            edge = _in_word(before, border.flags) != _in_word(symbol[:1], border.flags)
            return edge == (border.kind == "b")


def _in_word(character: str, flags: int) -> bool:
    if not character or (flags & re.ASCII and not character.isascii()):
        return False
    return character.isalnum() or character == "_"
