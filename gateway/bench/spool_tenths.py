"""Whether a drain is steady: the seconds of each tenth of it."""

from __future__ import annotations

from collections.abc import Sequence


def tenths(begun: float, marks: Sequence[tuple[float, int]], items: int) -> list[float]:
    """From when it was begun, and how many items were through when; a tenth ends with the mark that completes it.

    Scaled to a whole tenth, as a mark is not at its very end.
    """
    found: list[float] = []
    time, done = begun, 0
    for number in range(1, 11):
        at, through = next(mark for mark in marks if mark[1] >= items * number // 10)
        if through > done:
            found.append((at - time) / (through - done) * items / 10)
            time, done = at, through
    return found
