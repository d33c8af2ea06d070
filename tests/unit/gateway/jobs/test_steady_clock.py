"""gateway/jobs/steady_clock.py."""

from __future__ import annotations

from gateway.jobs.steady_clock import SteadyClock
from tests.peers.clock import STARTED_WALL, HandClock

DAY = 86_400.0


def test_a_step_ahead_counts_when_it_has_stood_for_as_long_as_things_are_kept() -> None:
    clock = HandClock()
    steady = SteadyClock(clock, DAY)
    clock.step_wall(DAY)
    assert steady.now() == STARTED_WALL
    clock.move(3600)
    assert steady.now() == STARTED_WALL + 3600
    clock.move(DAY)
    assert steady.now() == STARTED_WALL + 2 * DAY + 3600


def test_a_clock_that_is_set_right_again_has_made_nothing_old() -> None:
    clock = HandClock()
    steady = SteadyClock(clock, DAY)
    for step in (DAY, -DAY, -DAY, DAY):
        clock.step_wall(step)
        assert steady.now() <= clock.wall() + 1
        assert steady.now() <= STARTED_WALL + 1
