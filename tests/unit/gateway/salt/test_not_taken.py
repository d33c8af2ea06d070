"""gateway/salt/not_taken.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.salt.not_taken import REMEMBERED, TRIES, NotTaken
from gateway.salt.pace import CHUNK


@given(st.integers(1, 3 * CHUNK), st.sets(st.integers(0, 3 * CHUNK), max_size=3))
def test_those_that_are_not_taken_are_found_and_all_others_are_told_once(count: int, odd: set[int]) -> None:
    found, told, waiting, messages = list[int](), list[int](), list(range(count)), 0
    not_taken = NotTaken()
    while waiting:
        some = waiting[: not_taken.fit("returns", waiting)]
        messages += 1
        if not odd.intersection(some):
            told += some
        elif not_taken.refused("salt", "returns", some):
            found += some
        else:
            continue
        not_taken.gone("returns", some)
        waiting = waiting[len(some) :]
    assert set(found) == odd & set(range(count))
    assert told == [item for item in range(count) if item not in odd]
    assert messages <= 3 + len(found) * (2 * 7 + TRIES)


def test_what_is_doubted_is_doubted_of_one_master_and_one_stream() -> None:
    not_taken = NotTaken()
    for _ in range(TRIES - 1):
        assert not not_taken.refused("one", "returns", [7])
    assert not not_taken.refused("two", "returns", [7])
    assert not not_taken.refused("one", "events", [7])
    assert not_taken.refused("one", "returns", [7])


def test_a_master_that_takes_nothing_fills_no_memory() -> None:
    not_taken = NotTaken()
    for start in range(0, 2 * REMEMBERED, CHUNK):
        not_taken.refused("salt", "returns", range(start, start + CHUNK))
    for alone in range(2 * REMEMBERED):
        not_taken.refused("salt", "events", [alone])
        not_taken.odd_job("salt", str(alone))
    assert len(not_taken._most) == len(not_taken._tries) == len(not_taken._odd_jobs) == REMEMBERED
    assert not_taken.is_odd_job("salt", str(2 * REMEMBERED - 1))
