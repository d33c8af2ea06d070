"""A Salt master that is slow is told less at once, one that is quick again more, and neither without a bound."""

from __future__ import annotations

from gateway.salt.pace import CHUNK, FEW, LINES, QUICK_SECONDS, SLOW_SECONDS, Pace


def after(pace: Pace, *, each: float, messages: int) -> Pace:
    """A master that takes so many seconds for each answer, one message after another."""
    for _ in range(messages):
        pace.took(pace.chunk, pace.chunk * each, confirmed=True)
    return pace


def test_a_stock_master_is_told_the_most_at_once() -> None:
    assert after(Pace(), each=0.008, messages=100) == Pace(CHUNK, LINES)


def test_messages_shrink_until_each_is_confirmed_long_before_it_is_given_up() -> None:
    for each in (0.2, 1.0, 3.0):
        pace = after(Pace(), each=each, messages=20)
        assert pace.chunk * each < SLOW_SECONDS, each
        assert after(pace, each=each, messages=200).chunk * each < 1.5 * SLOW_SECONDS, "it does not swing"


def test_a_message_that_was_given_up_shrinks_the_next_ones_once_however_many_were_on_their_way() -> None:
    pace = Pace()
    for _ in range(LINES):
        pace.took(CHUNK, 60.0, confirmed=False)
    assert pace == Pace(CHUNK // 4, LINES)


def test_a_link_that_is_lost_at_once_says_nothing_of_the_master() -> None:
    pace = Pace()
    pace.took(CHUNK, 0.1, confirmed=False)
    assert pace == Pace()


def test_a_master_that_is_slow_over_a_few_answers_gets_one_message_at_a_time_and_never_none() -> None:
    pace = after(Pace(), each=20.0, messages=50)
    assert pace == Pace(1, 1)


def test_a_master_that_is_quick_again_is_told_the_most_at_once_again() -> None:
    pace = after(Pace(1, 1), each=0.0, messages=3)
    assert pace.chunk < FEW
    assert pace.ways == 1, "more at once only when a message has more than a few"
    assert after(pace, each=0.0, messages=30) == Pace(CHUNK, LINES)


def test_a_message_that_was_not_full_or_not_quick_makes_the_next_no_larger() -> None:
    pace = Pace(40, 2)
    pace.took(39, 0.1, confirmed=True)
    pace.took(40, QUICK_SECONDS, confirmed=True)
    assert pace == Pace(40, 2)
