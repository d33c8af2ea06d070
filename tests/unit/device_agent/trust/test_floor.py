"""device_agent/trust/floor.py: the floor of time only rises, and only as far as its signers are believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.trust.floor import MASTER_LIMIT_SECONDS, MOVED_SECONDS, WRITE_SECONDS, Floor

DAY = 86_400
NOW = 1_800_000_000
LIMIT = 400 * DAY


def test_flash_and_the_age_of_the_image_give_the_first_floor() -> None:
    assert Floor(stored=5, built=9).value == 9
    assert Floor(stored=9, built=5).value == 9


def test_a_root_list_raises_the_floor_and_an_older_one_does_not_lower_it() -> None:
    floor = Floor(built=NOW)
    floor.root_signed(NOW + DAY)
    floor.root_signed(NOW - DAY)
    assert floor.value == NOW + DAY


def test_what_a_master_signed_raises_the_floor() -> None:
    floor = Floor()
    floor.root_signed(NOW)
    floor.master_signed(NOW + 30 * DAY)
    floor.master_signed(NOW + 20 * DAY)
    assert floor.value == NOW + 30 * DAY


def test_a_stolen_master_key_cannot_push_the_floor_past_all_expiries() -> None:
    floor = Floor()
    floor.root_signed(NOW)
    floor.master_signed(NOW + 8000 * DAY)
    assert floor.value == NOW + LIMIT == NOW + MASTER_LIMIT_SECONDS
    floor.root_signed(NOW + DAY)
    floor.master_signed(NOW + 8000 * DAY)
    assert floor.value == NOW + DAY + LIMIT


def test_who_was_told_the_time_is_moved_by_no_master_to_a_time_that_is_to_come() -> None:
    floor = Floor()
    floor.root_signed(NOW)
    floor.told(NOW + 100.0, 50.0)
    floor.master_signed(NOW + 2 * DAY, 50.0)
    assert floor.value == NOW
    # Nor step by step: what counts is what the site has told, and how long ago.
    for _ in range(3):
        floor.master_signed(NOW + 100 + MOVED_SECONDS, 50.0)
        floor.master_signed(NOW + 101 + MOVED_SECONDS, 50.0)
    assert floor.value == NOW + 100 + MOVED_SECONDS
    floor.master_signed(NOW + 101 + MOVED_SECONDS, 51.0)
    assert floor.value == NOW + 101 + MOVED_SECONDS


def test_without_a_root_list_nothing_says_how_far_a_master_is_believed() -> None:
    floor = Floor(built=NOW)
    floor.master_signed(NOW + DAY)
    assert floor.value == NOW


@pytest.mark.parametrize("lie", [0.0, NOW - 1.0, NOW + 1.0, 2e11])
def test_a_site_never_moves_the_floor(lie: float) -> None:
    floor = Floor(stored=NOW)
    floor.told(lie, 100.0)
    floor.now(1e9)
    assert (floor.value, floor.dirty) == (NOW, False)


def test_a_site_cannot_set_the_clock_before_the_floor() -> None:
    floor = Floor(stored=NOW)
    floor.told(NOW - 50.0 * DAY, 100.0)
    assert floor.now(100.0) == NOW
    assert floor.now(110.0) == NOW + 10


def test_time_goes_on_from_what_the_site_said() -> None:
    floor = Floor(stored=NOW)
    had_time = [floor.has_time]
    assert floor.now(50.0) == floor.now(5000.0) == NOW
    floor.told(NOW + 7.0, 100.0)
    assert floor.now(160.0) == NOW + 67
    assert [*had_time, floor.has_time] == [False, True]


def test_a_lie_about_the_future_ends_with_the_next_word_of_the_site() -> None:
    floor = Floor(stored=NOW)
    floor.told(NOW + 9999.0 * DAY, 100.0)
    floor.told(NOW + 5.0, 200.0)
    assert floor.now(201.0) == NOW + 6


def test_a_floor_that_rises_later_lifts_the_time() -> None:
    floor = Floor(stored=NOW)
    floor.told(NOW + 5.0, 100.0)
    floor.root_signed(NOW + DAY)
    assert floor.now(101.0) == NOW + DAY


def test_the_floor_goes_to_flash_when_it_rose_and_at_most_hourly() -> None:
    floor = Floor(stored=NOW)
    assert not floor.write_due(0.0)
    floor.root_signed(NOW + 1)
    assert floor.write_due(0.0)
    floor.written(0.0)
    assert not floor.write_due(WRITE_SECONDS)
    floor.master_signed(NOW + 2)
    assert floor.dirty
    assert not floor.write_due(WRITE_SECONDS - 1)
    assert floor.write_due(WRITE_SECONDS)


def test_what_the_image_knows_is_written_once() -> None:
    assert Floor(stored=5, built=9).write_due(0.0)


moves = st.lists(
    st.tuples(st.sampled_from(["root_signed", "master_signed", "told"]), st.integers(0, 4 * LIMIT)), max_size=30
)


@given(moves)
def test_whoever_says_what_the_floor_only_rises_and_the_time_is_never_before_it(steps: list[tuple[str, int]]) -> None:
    floor = Floor(stored=LIMIT)
    newest_root = None
    for step, (name, time) in enumerate(steps):
        before = floor.value
        if name == "told":
            floor.told(float(time), float(step))
            assert floor.value == before
        else:
            getattr(floor, name)(time)
        if name == "root_signed":
            newest_root = max(time, newest_root or 0)
        assert floor.value >= before
        assert floor.value <= max(before, (newest_root or 0) + LIMIT)
        assert floor.now(float(step)) >= floor.value
