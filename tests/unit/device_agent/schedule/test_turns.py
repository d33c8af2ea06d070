"""device_agent/schedule/turns.py: no due time is taken twice, none is forgotten, and clocks may jump."""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agent.schedule.entries import Entry, entry
from device_agent.schedule.turns import FULL, State, Turn, Turns
from tests.peers.clock import STARTED_WALL, HandClock

DAY = 86_400.0


def made(name: str = "e", **fields: Any) -> Entry:
    return entry(name, {"function": "test.ping", **fields}, UTC)


class Played:
    """Turns that are told the time by hand, and start again as a process does."""

    def __init__(self, *entries: Entry) -> None:
        self.clock = HandClock()
        self.entries = {each.name: each for each in entries}
        self.running: Counter[str] = Counter()
        self.turns = Turns("cam", lambda name: self.running[name])
        self.turns.replace(self.entries, self.clock.wall())

    def tick(self) -> list[Turn]:
        return self.turns.tick(self.clock.wall(), self.clock.monotonic())

    def pass_by(self, seconds: float, step: float = 1.0) -> list[Turn]:
        found = self.tick()
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.move(step)
            found += self.tick()
        return found

    def end_and_start(self, down: float = 0.0) -> None:
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(self.turns.states), type=dict[str, State])
        self.clock.move(down)
        self.clock = HandClock(monotonic=5.0, wall=self.clock.wall())
        self.turns = Turns("cam", lambda name: self.running[name])
        self.turns.states = kept
        self.turns.replace(self.entries, self.clock.wall())


def ran(turns: list[Turn]) -> list[float]:
    return [turn.due - STARTED_WALL for turn in turns if not turn.reason]


def test_an_interval_runs_at_the_start_and_then_on_time_without_drift() -> None:
    played = Played(made(seconds=10))
    assert ran(played.pass_by(45, step=0.7)) == [0.0, 10.0, 20.0, 30.0, 40.0]


def test_without_run_on_start_an_interval_waits_and_a_restart_does_not_begin_it_anew() -> None:
    played = Played(made(seconds=600, run_on_start=False))
    assert ran(played.pass_by(400)) == []
    played.end_and_start()
    assert ran(played.pass_by(250)) == [600.0]


def test_what_was_missed_is_run_once_and_late_where_it_is_wanted_and_said_otherwise() -> None:
    wanted, other = made("wanted", cron="*/10 * * * *", run_missed=True), made("other", cron="*/10 * * * *")
    played = Played(wanted, other)
    played.tick()
    played.end_and_start(down=2 * 3600 + 120)
    found = {turn.entry.name: turn for turn in played.tick()}
    assert {name: turn.reason for name, turn in found.items()} == {"wanted": "", "other": "missed"}
    assert found["wanted"].late == 420.0
    assert played.tick() == []
    assert [turn.late for turn in played.pass_by(600)] == [0.0, 0.0]


def test_what_is_on_time_again_stands_for_what_was_missed() -> None:
    played = Played(made(cron="*/10 * * * *", run_missed=True))
    played.tick()
    played.end_and_start(down=3900.0)
    assert [turn.late for turn in played.tick()] == [0.0]
    assert played.turns.states["e"].missed == 1


def test_once_runs_once_whatever_comes() -> None:
    at = STARTED_WALL + 100
    played = Played(made(once="2026-11-21T03:16:40", run_missed=True))
    assert ran(played.pass_by(99)) == []
    assert ran(played.pass_by(5)) == [100.0]
    for jump in (-DAY, DAY, -10 * DAY, -200.0):
        played.clock.step_wall(jump)
        assert ran(played.pass_by(300, step=10.0)) == []
    played.end_and_start()
    played.clock.step_wall(at - 200 - played.clock.wall())
    assert ran(played.pass_by(400, step=10.0)) == []


def test_once_that_is_over_before_it_is_known_is_missed() -> None:
    for wanted, reason in ((True, ""), (False, "missed")):
        played = Played(made(once="2026-11-21T02:00:00", run_missed=wanted))
        assert [turn.reason for turn in played.tick()] == [reason]
        assert played.pass_by(100) == []


def test_what_was_done_and_is_not_known_any_more_counts_as_done() -> None:
    played = Played()
    played.turns.forgot = True
    played.turns.replace({"e": made(once="2026-11-21T02:00:00", run_missed=True)}, played.clock.wall())
    assert played.pass_by(100) == []


@pytest.mark.parametrize("rhythm", [{"seconds": 60, "run_on_start": False}, {"cron": "* * * * *"}])
def test_a_jump_of_a_day_forward_runs_nothing_a_thousand_times(rhythm: dict[str, Any]) -> None:
    played = Played(made(**rhythm))
    assert len(ran(played.pass_by(180))) == 3
    played.clock.step_wall(DAY)
    assert len(played.tick()) <= 1
    assert len(ran(played.pass_by(600))) in (10, 11)


@pytest.mark.parametrize("rhythm", [{"seconds": 60, "run_on_start": False}, {"cron": "* * * * *"}, {"when": "03:16"}])
def test_a_jump_of_a_day_back_stops_nothing(rhythm: dict[str, Any]) -> None:
    played = Played(made(**rhythm))
    before = len(ran(played.pass_by(180)))
    played.clock.step_wall(-DAY - 180)
    assert len(ran(played.pass_by(180))) == before


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_a_device_whose_clock_begins_in_1970_repeats_nothing_when_it_is_set(restarts: int) -> None:
    played = Played(made(cron="30 4 * * *", run_missed=True))
    assert len(ran(played.pass_by(DAY, step=60.0))) == 1
    before = played.clock.wall()
    played.clock.step_wall(100.0 - before)
    for _ in range(restarts):
        played.end_and_start()
        assert not played.pass_by(3.0)
    assert not played.pass_by(3.0)
    played.clock.step_wall(before - played.clock.wall())
    assert not played.pass_by(3.0), "the run of this morning came again"
    assert len(ran(played.pass_by(DAY, step=60.0))) == 1


def test_what_a_device_missed_while_it_was_off_comes_once_when_its_clock_is_set() -> None:
    played = Played(made(cron="30 4 * * *", run_missed=True))
    played.pass_by(DAY, step=60.0)
    before = played.clock.wall()
    played.clock.step_wall(100.0 - before)
    played.end_and_start()
    played.pass_by(3.0)
    played.clock.step_wall(before + 3 * DAY - played.clock.wall())
    assert [turn.late > 0 for turn in played.pass_by(3.0)] == [True]


def test_a_clock_that_is_put_back_a_little_repeats_nothing() -> None:
    played = Played(made(cron="*/10 * * * *"))
    assert ran(played.pass_by(700)) == [300.0]
    played.clock.step_wall(-600.0)
    # 03:20 comes a second time, and 03:30 is the next.
    assert ran(played.pass_by(800)) == [900.0]


@given(
    rhythm=st.sampled_from(
        [
            {"cron": "*/7 * * * *"},
            {"seconds": 100, "run_on_start": False},
            {"when": ["03:20", "04:00"]},
            {"once": "2026-11-21T03:40:00"},
            {"cron": "*/20 * * * *", "splay": 120},
        ]
    ),
    missed=st.booleans(),
    steps=st.lists(
        st.tuples(st.sampled_from(["pass", "down", "small jump"]), st.floats(0.1, 5000.0)), min_size=1, max_size=12
    ),
)
@settings(deadline=None)
def test_no_due_time_is_taken_twice_and_time_goes_on(
    rhythm: dict[str, Any], missed: bool, steps: list[tuple[str, float]]
) -> None:
    played = Played(made(run_missed=missed, **rhythm))
    found: list[Turn] = []
    wrong = 0.0
    for step, seconds in steps:
        if step == "pass":
            found += played.pass_by(seconds, step=11.0)
        elif step == "down":
            played.end_and_start(down=seconds)
        elif "seconds" not in rhythm:
            # Several of them together are no large one: that is another matter.
            before, wrong = wrong, min(seconds, 3000.0) * (1 if int(seconds) % 2 else -1)
            played.clock.step_wall(wrong - before)
    dues = [turn.due for turn in found if turn.kind == "due"]
    assert dues == sorted(set(dues))
    assert all(turn.late == 0.0 or missed or turn.reason == "missed" for turn in found)


@given(st.integers(1, 300), st.floats(0.5, 30.0))
@settings(deadline=None)
def test_a_splayed_run_comes_within_its_splay(end: int, step: float) -> None:
    played = Played(made(cron="*/10 * * * *", splay=end))
    for _ in range(40):
        played.clock.move(step)
        for turn in played.tick():
            late = played.clock.wall() - turn.due
            assert 1.0 <= late <= end + step


def test_more_than_may_run_at_once_are_left_out_and_it_is_said() -> None:
    played = Played(made(seconds=10, maxrunning=2), made("free", seconds=10, jid_include=False))
    played.running.update({"e": 2, "free": 9})
    assert {turn.entry.name: turn.reason for turn in played.tick()} == {"e": "maxrunning", "free": ""}
    assert played.turns.states["e"].skip_reason == "maxrunning"
    played.running["free"] = FULL
    played.clock.move(10.0)
    assert {turn.entry.name: turn.reason for turn in played.tick()}["free"] == "maxrunning"


def test_a_run_is_left_out_and_put_off() -> None:
    played = Played(made(cron="*/10 * * * *"))
    due = STARTED_WALL + 300
    played.turns.skip("e", due)
    played.turns.run_at("e", due + 125)
    assert played.turns.next_fire("e") == due
    found = played.pass_by(500)
    assert [(turn.due - due, turn.kind, turn.reason) for turn in found] == [
        (0.0, "due", "skip_explicit"),
        (125.0, "explicit", ""),
    ]


def test_after_a_range_that_is_skipped_it_runs_where_that_is_wanted() -> None:
    span = {"start": "03:00", "end": "03:30"}
    played = Played(made(minutes=10, skip_during_range=span, run_after_skip_range=True, run_on_start=False))
    found = played.pass_by(1000)
    assert [turn.reason for turn in found] == ["in_skip_range", ""]
    assert found[-1].due == STARTED_WALL + 901


def test_a_schedule_that_is_switched_off_runs_nothing() -> None:
    played = Played(made(seconds=10))
    played.turns.enabled = False
    assert {turn.reason for turn in played.pass_by(50)} == {"disabled"}


def test_another_rhythm_is_another_entry_and_other_arguments_are_not() -> None:
    played = Played(made(minutes=10, run_on_start=False))
    played.pass_by(300)
    played.turns.replace({"e": made(minutes=10, run_on_start=False, args=["x"])}, played.clock.wall())
    assert played.turns.next_fire("e") == STARTED_WALL + 600
    played.turns.replace({"e": made(minutes=20, run_on_start=False)}, played.clock.wall())
    assert played.turns.next_fire("e") == STARTED_WALL + 300 + 1200


def test_an_entry_that_comes_runs_at_once_and_one_that_comes_back_remembers() -> None:
    played = Played()
    once = made(once="2026-11-21T03:15:10", run_missed=True)
    played.turns.replace({"e": once}, played.clock.wall())
    assert len(ran(played.pass_by(30))) == 1
    played.turns.replace({}, played.clock.wall())
    played.turns.replace({"e": once}, played.clock.wall())
    assert ran(played.pass_by(30)) == []
    played.turns.forget("e")
    played.turns.replace({"e": made(seconds=50)}, played.clock.wall())
    assert len(ran(played.pass_by(10))) == 1
