"""device_agent/trust/replay.py: each job number of a signer is taken once, also across a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust.replay import ISSUERS, WINDOW, Replay, next_seq, raised_by_mark

A = b"a" * 8
B = b"b" * 8


def refused(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.reason


def noted(*numbers: int) -> Replay:
    replay = Replay()
    for number in numbers:
        replay.note(A, number)
    return replay


def test_a_replayed_job_is_refused() -> None:
    replay = noted(5)
    assert refused(replay.check, A, 5) == "replayed"
    assert refused(replay.note, A, 5) == "replayed"


def test_jobs_may_come_out_of_order() -> None:
    replay = noted(9, 5, 7)
    replay.check(A, 6)
    assert refused(replay.check, A, 7) == "replayed"


def test_looking_takes_nothing() -> None:
    replay = Replay()
    replay.check(A, 5)
    replay.note(A, 5)
    assert replay.marks() == [(A, 5)]


def test_numbers_count_for_each_signer() -> None:
    replay = noted(5)
    replay.check(B, 5)
    replay.raise_to(B, 9)
    replay.check(A, 6)
    assert refused(replay.check, B, 6) == "stale_seq"


def test_the_latest_256_are_told_apart_and_what_is_older_is_refused() -> None:
    replay = noted(*range(10, 10 + 2 * WINDOW, 2))
    assert refused(replay.check, A, 10) == "replayed"
    replay.check(A, 11)
    replay.note(A, 10_000)
    assert refused(replay.check, A, 10) == "stale_seq"
    assert refused(replay.check, A, 9) == "stale_seq"
    replay.check(A, 11)
    assert len(replay._seen[A]) == WINDOW


def test_an_old_number_that_is_just_above_the_mark_is_taken_once() -> None:
    replay = noted(*range(100, 100 + WINDOW))
    replay.note(A, 50)
    assert refused(replay.check, A, 50) == "stale_seq"
    replay.check(A, 51)


def test_after_a_restart_nothing_at_or_below_the_mark_on_flash_is_taken() -> None:
    replay = Replay()
    replay.raise_to(A, 500)
    assert refused(replay.check, A, 500) == "stale_seq"
    assert refused(replay.check, A, 3) == "stale_seq"
    replay.check(A, 501)


def test_a_mark_never_sinks() -> None:
    replay = noted(5, 9)
    replay.raise_to(A, 7)
    replay.raise_to(A, 2)
    assert refused(replay.check, A, 7) == "stale_seq"
    assert refused(replay.check, A, 9) == "replayed"


def test_the_marks_are_the_numbers_above_which_everything_is_new() -> None:
    replay = noted(5, 9)
    replay.raise_to(B, 4)
    assert sorted(replay.marks()) == [(A, 9), (B, 4)]
    assert (replay.highest(A), replay.highest(b"c" * 8)) == (9, -1)
    for kid, mark in replay.marks():
        replay.check(kid, mark + 1)


def test_no_signer_is_forgotten_to_make_room_for_another() -> None:
    replay = Replay()
    kids = [bytes([number]) * 8 for number in range(ISSUERS)]
    for kid in kids:
        replay.note(kid, 1)
    assert refused(replay.check, A, 1) == "too_many_issuers"
    assert refused(replay.note, A, 1) == "too_many_issuers"
    assert refused(replay.raise_to, A, 1) == "too_many_issuers"
    replay.note(kids[0], 2)
    assert all(refused(replay.check, kid, 1) == "replayed" for kid in kids)


def test_signers_that_count_no_more_make_room() -> None:
    replay = noted(5)
    replay.note(B, 5)
    replay.keep({B})
    assert replay.marks() == [(B, 5)]


@given(st.lists(st.integers(0, 600), max_size=700))
def test_whatever_comes_no_number_is_taken_twice(numbers: list[int]) -> None:
    replay, taken = Replay(), set()
    for number in numbers:
        try:
            replay.note(A, number)
        except Refused:
            continue
        assert number not in taken
        taken.add(number)
    for number in taken:
        assert refused(replay.check, A, number) in {"replayed", "stale_seq"}


def test_the_next_number_is_the_time_or_one_more() -> None:
    assert next_seq(0, 1_800_000_000.25) == 1_800_000_000_250
    assert next_seq(1_800_000_000_250, 1_800_000_000.25) == 1_800_000_000_251
    assert next_seq(1_900_000_000_000, 1_800_000_000.0) == 1_900_000_000_001


def test_a_station_that_was_restored_goes_on_above_what_a_device_has_seen() -> None:
    wall = 1_800_000_000.0
    assert raised_by_mark(5, 1_800_000_000_500, wall) == 1_800_000_000_500
    assert raised_by_mark(9, 4, wall) == 9


def test_one_device_cannot_push_a_station_out_of_the_reach_of_all_others() -> None:
    wall = 1_800_000_000.0
    assert raised_by_mark(5, 2**64 - 1, wall) == 5
