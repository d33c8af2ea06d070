"""upstream/window.py."""

from __future__ import annotations

from collections import Counter

import pytest

from device_agent.protocol import limits
from tests.peers.clock import HandClock
from upstream.window import FIRST_BYTES, LEAST_BYTES, MOST_BYTES, Window

PATIENT = 15.0


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def window(clock: HandClock) -> Window:
    return Window(clock, PATIENT)


class Line:
    """Fills the window, and confirms all that is under way."""

    def __init__(self, window: Window, clock: HandClock) -> None:
        self._window, self._clock, self._last = window, clock, 0

    def fill(self, size: int | None = None) -> int:
        count = 0
        while not self._window.is_full:
            self._last, count = self._last + 1, count + 1
            self._window.sent("events", self._last, self._window.batch_bytes if size is None else size)
        return count

    def confirm(self, after_seconds: float) -> None:
        self._clock.move(after_seconds)
        self._window.confirmed(Counter({"events": self._last}))


@pytest.fixture
def line(window: Window, clock: HandClock) -> Line:
    return Line(window, clock)


def test_it_grows_while_confirmations_come_soon_and_no_further_than_the_protocol_allows(
    window: Window, line: Line
) -> None:
    assert (window.batch_bytes, line.fill()) == (FIRST_BYTES // 2, 2)
    for _ in range(10):
        line.confirm(0.1)
        line.fill()
    line.confirm(0.1)
    assert window.batch_bytes == limits.BATCH_BYTES
    assert line.fill() == limits.BATCHES_IN_FLIGHT == MOST_BYTES // limits.BATCH_BYTES


def test_it_does_not_grow_while_confirmations_are_late_or_little_is_sent(
    window: Window, line: Line, clock: HandClock
) -> None:
    line.fill()
    line.confirm(1.5)
    for last in range(100, 200):
        window.sent("audit", last, 100)
        window.confirmed(Counter({"audit": last}))
    assert window.batch_bytes == FIRST_BYTES // 2


def test_it_shrinks_when_an_echo_waits_behind_it_and_never_to_nothing(window: Window, line: Line) -> None:
    window.echo_took(10.0)
    assert window.batch_bytes == FIRST_BYTES // 2, "nothing of ours was on the line"
    line.fill()
    window.echo_took(1.0)
    assert window.batch_bytes == FIRST_BYTES // 2
    for _ in range(10):
        window.echo_took(3.0)
    assert window.batch_bytes == LEAST_BYTES // 2


def test_after_a_loss_it_begins_with_little_if_something_was_under_way(window: Window, line: Line) -> None:
    window.begin()
    assert window.batch_bytes == FIRST_BYTES // 2
    line.fill()
    window.begin()
    assert (window.batch_bytes, line.fill()) == (LEAST_BYTES // 2, 2)


def test_small_batches_are_counted(line: Line) -> None:
    assert line.fill(size=1) == limits.BATCHES_IN_FLIGHT
