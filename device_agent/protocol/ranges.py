"""Ranges of names: ``cam[01-20],-cam07``. The language of the range server that Salt asks, without the server.

cam1..20  cam[1-20]  cam[01-20]  cam[1-3,7]   numbers; a first one with a leading zero says how wide they are
cam{a,b}-{in,out}                             any of these words
A,B  A,-B  A,&B                               A or B; A but not B; both; from left to right
%NAME                                         a cluster: the station's nodegroup of this name
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

OPERANDS = 64
_piece = re.compile(
    r"\[(?P<numbers>[0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*)\]"
    r"|\{(?P<words>[A-Za-z0-9_.:@,-]*)\}"
    r"|(?P<first>[0-9]{1,9})\.\.(?P<last>[0-9]{1,9})"
    r"|(?P<literal>(?:(?![0-9]{1,9}\.\.)[A-Za-z0-9_.:@-])+)"
)

Operator = Literal["or", "and", "and not"]
Piece = Callable[[str, int], Iterator[int]]
"""Where a name may go on, when this piece of it starts here."""


class NotARange(ValueError):
    """What is wrong with it, for people."""


def operands(text: str) -> list[tuple[Operator, str]]:
    """What is joined, each with how it joins what stands before it. Raises ``NotARange``."""
    found: list[tuple[Operator, str]] = []
    for word in _split(text):
        how: Operator = "or"
        if found and word.startswith(("-", "&")):
            how = "and not" if word[0] == "-" else "and"
        operand = word if how == "or" else word[1:]
        if not operand:
            raise NotARange("there is nothing beside a comma")
        found.append((how, operand))
    if len(found) > OPERANDS:
        raise NotARange(f"it joins {len(found)} ranges, at most {OPERANDS}")
    return found


def compile_range(text: str) -> Callable[[str], bool]:
    """A test for one name; a cluster cannot be judged here. Raises ``NotARange``."""
    joined = [(how, _compile_operand(word)) for how, word in operands(text)]

    def matches(name: str) -> bool:
        meant = False
        for how, test in joined:
            meant = (meant or test(name)) if how == "or" else meant and test(name) == (how == "and")
        return meant

    return matches


def _split(text: str) -> list[str]:
    """At the commas that stand in no bracket."""
    words, inside = [""], False
    for character in text:
        inside = character in "[{" or (inside and character not in "]}")
        if character == "," and not inside:
            words.append("")
        else:
            words[-1] += character
    return words


def _compile_operand(word: str) -> Callable[[str], bool]:
    if word.startswith("%"):
        raise NotARange(f"{word} is a cluster, which only a station knows")
    pieces: list[Piece] = []
    at = 0
    while at < len(word):
        found = _piece.match(word, at)
        if found is None:
            raise NotARange(f"{word[at:][:40]!r} is no name, [1-20], {{a,b}} or 1..20")
        pieces.append(_compile_piece(found))
        at = found.end()

    def matches(name: str) -> bool:
        places = {0}
        for piece in pieces:
            places = {after for place in places for after in piece(name, place)}
        return len(name) in places

    return matches


def _compile_piece(found: re.Match[str]) -> Piece:
    if found["numbers"]:
        return _numbers([span.partition("-")[::2] for span in found["numbers"].split(",")])
    if found["first"]:
        return _numbers([(found["first"], found["last"])])
    words = [found["literal"]] if found["literal"] else found["words"].split(",")
    return lambda name, at: (at + len(word) for word in words if name.startswith(word, at))


def _numbers(written: list[tuple[str, str]]) -> Piece:
    spans = []
    for first, last in written:
        low, high = int(first), int(last or first)
        if low > high:
            raise NotARange(f"{first} is above {last}")
        spans.append((low, high, len(first) if first.startswith("0") else 1))
    longest = max(max(len(str(high)), width) for _, high, width in spans)

    def ends(name: str, at: int) -> Iterator[int]:
        for end in range(at + 1, min(at + longest, len(name)) + 1):
            digits = name[at:end]
            if not (digits.isascii() and digits.isdecimal()):
                return
            number = int(digits)
            if any(low <= number <= high and digits == str(number).zfill(width) for low, high, width in spans):
                yield end

    return ends
