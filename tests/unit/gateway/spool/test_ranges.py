"""gateway/spool/ranges.py."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.spool.ranges import RANGES, Ranges


@given(st.lists(st.integers(min_value=0, max_value=60), max_size=80))
def test_what_was_added_is_in_it_and_nothing_else(numbers: list[int]) -> None:
    ranges = Ranges()
    for number in numbers:
        ranges.add(number)
    assert {number for number in range(62) if number in ranges} == set(numbers)
    pairs = ranges.pairs()
    assert all(first <= last for first, last in pairs)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(pairs))
    assert Ranges(pairs).pairs() == pairs


def test_beyond_its_bound_the_narrowest_gap_counts_as_seen() -> None:
    ranges = Ranges()
    for place in range(RANGES):
        ranges.add(place * 10)
    ranges.add(RANGES * 10 + 1_000_000)
    assert len(ranges.pairs()) == RANGES
    assert 5 in ranges
    assert RANGES * 10 + 500 not in ranges
