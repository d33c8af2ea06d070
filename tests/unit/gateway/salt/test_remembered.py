"""What is at hand of jobs never takes more memory than was meant for it."""

from __future__ import annotations

from gateway.salt.remembered import BYTES, JOBS, Remembered


def test_what_was_not_asked_for_the_longest_time_is_let_go_when_the_bytes_are_used_up() -> None:
    jobs = Remembered()
    for name in ("a", "b"):
        jobs.put(name, None, BYTES // 2)
    assert jobs["a"] is None
    jobs.put("c", None, BYTES // 2)
    assert [name in jobs for name in "abc"] == [True, False, True]
    jobs.put("c", None, 1)
    assert jobs.size == BYTES // 2 + 1, "the one before it counts no more"


def test_what_is_larger_than_all_of_it_is_not_remembered() -> None:
    jobs = Remembered()
    jobs.put("a", None, BYTES + 1)
    assert ("a" in jobs, jobs.size) == (False, 0)


def test_small_ones_are_bounded_in_number() -> None:
    jobs = Remembered()
    for number in range(JOBS + 1):
        jobs.put(str(number), None, 1)
    assert ("0" in jobs, "1" in jobs, jobs.size) == (False, True, JOBS)
