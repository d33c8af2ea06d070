r"""Regular expressions that cannot hang: Python's syntax, and a bound on the work before any name is looked at.

``re`` tries every way to read a text, which for ``(a+)+$`` is for ever. So the ways are counted beforehand. What has
few is left to ``re``; what has many, such as ``.*a.*b.*c``, is followed by a machine that is in many places at once and
reads each character once (``linear_pattern``). What neither can do, many ways together with a back reference or a look
around, is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

from device_agent.protocol.linear_pattern import LinearPattern
from device_agent.protocol.pattern_tree import (
    TEXT_CHARACTERS,
    Border,
    Character,
    InOrder,
    Node,
    OneOf,
    Repeat,
    Settled,
    Unreadable,
    read_tree,
)

__all__ = ["Unreadable", "compile_pattern", "steps"]

STEPS = 2000
"""Most ways that ``re`` may be left with, for a text of ``TEXT_CHARACTERS``. Two unbounded repeats are beyond it."""

_WITHOUT_END = 10**9


def compile_pattern(pattern: str, *, ignore_case: bool = False) -> Callable[[str], bool]:
    """A test whether a text starts with what the expression describes, as ``re.match`` says.

    Raises ``re.error`` (or ``OverflowError``, ``RecursionError``, ``ValueError``) for what Python does not take, and
    ``Unreadable`` for what could take for ever.
    """
    with warnings.catch_warnings():
        # What may mean something else in a later Python is no news to whoever sent it.
        warnings.simplefilter("ignore")
        compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    tree = read_tree(pattern, compiled.flags)
    if steps(tree, TEXT_CHARACTERS) > STEPS:
        return LinearPattern(tree).match
    match = compiled.match
    return lambda text: match(text) is not None


def steps(tree: Node, characters: int) -> int:
    """Most steps that ``re`` takes to try all ways to read a text of so many characters from its start."""
    return _cost(tree, characters)[1]


def _cost(node: Node, characters: int) -> tuple[int, int]:
    """In how many ways this can be read, and how many steps it takes to try them all."""
    match node:
        case Character() | Border():
            return 1, 1
        case Settled(part):
            return 1, _cost(part, characters)[1]
        case OneOf(parts):
            costs = [_cost(part, characters) for part in parts]
            return _least(sum(ways for ways, _ in costs)), _least(sum(steps for _, steps in costs))
        case InOrder(parts):
            ways, steps = 1, 1
            for part in parts:
                more_ways, more_steps = _cost(part, characters)
                steps = _least(steps + ways * more_steps)
                ways = _least(ways * more_ways)
            return ways, steps
        case Repeat(part, least, most):
            each_ways, each_steps = _cost(part, characters)
            top = max(least, min(characters, most if most is not None else characters))
            return _powers(each_ways, least, top), _least(each_steps * _powers(each_ways, 0, max(top, 1)))


def _powers(number: int, first: int, last: int) -> int:
    """The sum of its powers from the first to the last."""
    if number == 1:
        return _least(last - first + 1)
    return _WITHOUT_END if last >= 30 else _least(sum(number**times for times in range(first, last + 1)))


def _least(number: int) -> int:
    return min(number, _WITHOUT_END)
