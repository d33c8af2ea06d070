"""Which sequences of an outbox are taken, against a plain set of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.devices.outboxes import RANGES, Taken

OUTBOX = b"8 bytes."


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 6)), max_size=25))
def test_it_is_a_set_of_numbers(takes: list[tuple[int, int]]) -> None:
    taken, wanted = Taken(OUTBOX), set[int]()
    for low, more in takes:
        taken.take(low, low + more)
        wanted.update(range(low, low + more + 1))
        ranges = taken.ranges()
        assert {number for low, high in ranges for number in range(low, high + 1)} == wanted
        # No two could be one.
        assert all(high + 1 < low for (_, high), (low, _) in pairwise(ranges))
    assert {number for number in range(120) if number in taken} == wanted


def test_what_is_one_gap_too_many_is_not_kept_and_nothing_else_is_lost() -> None:
    taken = Taken(OUTBOX)
    for number in range(RANGES + 5):
        taken.take(2 * number + 1, 2 * number + 1)
    assert len(taken.ranges()) == RANGES
    assert 2 * RANGES - 1 in taken
    assert 2 * RANGES + 1 not in taken
    # The device says that nothing below comes any more: there is room again.
    taken.take(1, 2 * RANGES)
    taken.take(2 * RANGES + 5, 2 * RANGES + 5)
    assert taken.ranges() == [(1, 2 * RANGES), (2 * RANGES + 5, 2 * RANGES + 5)]
