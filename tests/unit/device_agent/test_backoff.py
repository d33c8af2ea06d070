"""device_agent/backoff.py."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.backoff import Backoff


class Highest(random.Random):
    """Chance at its worst: always the longest wait."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def test_the_bound_doubles_up_to_the_ceiling() -> None:
    waits = Backoff(1.0, 10.0, source=Highest(1))
    assert [waits.next() for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_it_starts_over_after_something_worked() -> None:
    waits = Backoff(1.0, 10.0, source=Highest(1))
    waits.next()
    waits.next()
    waits.reset()
    assert waits.next() == 1.0


@given(seed=st.integers(0, 1000), first=st.floats(0.01, 10), ceiling=st.floats(0.01, 100), tries=st.integers(1, 60))
def test_no_wait_is_over_the_ceiling_or_under_the_floor(seed: int, first: float, ceiling: float, tries: int) -> None:
    waits = Backoff(first, ceiling, floor=0.005, source=random.Random(seed))
    for _ in range(tries):
        assert 0.005 <= waits.next() <= ceiling


def test_waits_are_spread_over_the_whole_range() -> None:
    waits = Backoff(8.0, 8.0, source=random.Random(7))
    drawn = [waits.next() for _ in range(1000)]
    assert min(drawn) < 0.1
    assert max(drawn) > 7.9
    assert sum(drawn) / len(drawn) == pytest.approx(4.0, abs=0.3)


def test_a_thousand_tries_do_not_overflow() -> None:
    waits = Backoff(1.0, 30.0)
    assert all(waits.next() <= 30.0 for _ in range(2000))
