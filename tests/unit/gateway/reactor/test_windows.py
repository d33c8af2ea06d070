"""What a throttle makes of events, and that no clock that jumps opens or closes a window for ever."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from device_agent.protocol.messages import Event
from gateway.reactor.throttle import Accumulate, Throttle, key_of, throttle_of
from gateway.reactor.windows import TURNS, Verdict, Window

WALL = 1_795_230_900.0
YEAR = 365 * 86_400.0


def a_window(**bounds: Any) -> Window:
    return Window(("site/*", "/a.sls", "cam-1"), Throttle(**bounds))


def an_event(tag: str, data: dict[str, Any]) -> Event:
    return Event(tag=tag, data=data, stamp=0.0, site="lisbon")


def states(verdicts: list[Verdict]) -> list[tuple[int, str]]:
    return [(each.event, each.state) for each in verdicts]


def restarted(window: Window, now: float, wall: float) -> Window:
    again = Window(window.place, window.spec)
    again.restore(window.kept(), now, wall)
    return again


def test_once_within_lets_one_through_and_names_the_last() -> None:
    window = a_window(once_within=60.0)
    assert states(window.arrived(1, 0.0, WALL)) == [(1, "ready")]
    (held,) = window.arrived(2, 59.0, WALL + 59)
    assert (held.state, held.why) == (
        "held",
        "once_within 60 s for cam-1, the last was event 1 at 2026-11-21T03:15:00Z",
    )
    assert states(window.arrived(3, 60.0, WALL + 60)) == [(3, "ready")]


@pytest.mark.parametrize("jump", [-YEAR, -60.0, 0.0, 60.0, YEAR])
def test_while_it_runs_a_clock_that_jumps_moves_no_window(jump: float) -> None:
    window = a_window(once_within=60.0)
    window.arrived(1, 0.0, WALL)
    assert states(window.arrived(2, 59.0, WALL + jump)) == [(2, "held")]
    assert states(window.arrived(3, 61.0, WALL + jump)) == [(3, "ready")]


@pytest.mark.parametrize("jump", [-YEAR, -60.0])
def test_after_a_start_with_a_clock_that_is_behind_a_window_lasts_no_longer_than_it_is_said_to(jump: float) -> None:
    window = a_window(once_within=60.0, max_per_day=2)
    window.arrived(1, 0.0, WALL)
    window = restarted(window, 5000.0, WALL + jump)
    assert states(window.arrived(2, 5059.0, WALL + jump)) == [(2, "held")]
    assert states(window.arrived(3, 5061.0, WALL + jump)) == [(3, "ready")]
    assert states(window.arrived(4, 5000.0 + 86_390.0, WALL + jump)) == [(4, "held")]
    assert states(window.arrived(5, 5000.0 + 86_401.0, WALL + jump)) == [(5, "ready")]
    waits = a_window(once_after=10.0)
    waits.arrived(1, 0.0, WALL)
    waits = restarted(waits, 5000.0, WALL + jump)
    assert not waits.is_due(5009.0)
    assert waits.is_due(5010.0)


def test_a_restart_opens_no_window() -> None:
    window = a_window(once_within=60.0)
    window.arrived(1, 0.0, WALL)
    window = restarted(window, 7.0, WALL + 30)
    assert states(window.arrived(2, 7.0, WALL + 30)) == [(2, "held")]
    assert states(window.arrived(3, 37.0, WALL + 60)) == [(3, "ready")]


def test_once_after_reacts_to_the_last_when_it_is_quiet() -> None:
    window = a_window(once_after=10.0)
    assert states(window.arrived(1, 0.0, WALL)) == [(1, "waits")]
    assert states(window.arrived(2, 9.0, WALL)) == [(1, "held"), (2, "waits")]
    assert not window.is_due(18.9)
    assert window.is_due(19.0)
    assert states(window.fell_due(19.0, WALL)) == [(2, "ready")]
    assert not window.is_due(99.0)


def test_accumulate_ends_by_count_or_by_time() -> None:
    window = a_window(accumulate=Accumulate(count=3, seconds=10.0))
    assert states(window.arrived(1, 0.0, WALL)) == [(1, "waits")]
    assert states(window.arrived(2, 9.0, WALL)) == [(2, "waits")]
    assert window.is_due(10.0)
    assert states(window.fell_due(10.0, WALL)) == [(2, "ready")]
    for number in (3, 4, 5):
        assert not window.is_due(20.0)
        window.arrived(number, 20.0, WALL)
    assert window.is_due(20.0)
    assert states(window.fell_due(20.0, WALL)) == [(5, "ready")]


def test_max_concurrent_gives_turns_in_order_and_bounds_them() -> None:
    window = a_window(max_concurrent=1)
    found = [state for number in range(1, TURNS + 4) for _, state in states(window.arrived(number, 0.0, WALL))]
    assert found == ["ready", *["turn"] * TURNS, "held", "held"]
    assert states(window.ended(1)) == [(2, "ready")]
    assert states(window.ended(7)) == []
    assert states(window.ended(2)) == [(3, "ready")]


def test_max_per_day_counts_from_the_first_of_the_day() -> None:
    window = a_window(max_per_day=2)
    assert [window.arrived(number, number * 10.0, WALL)[0].state for number in (1, 2, 3)] == ["ready", "ready", "held"]
    assert window.arrived(4, 86_405.0, WALL)[0].state == "held"
    assert window.arrived(5, 86_411.0, WALL)[0].state == "ready"


def test_a_window_is_forgotten_when_nothing_depends_on_it() -> None:
    window = a_window(once_within=60.0)
    window.arrived(1, 0.0, WALL)
    assert not window.is_idle(59.0)
    assert window.is_idle(60.0)
    waits = a_window(once_after=10.0)
    waits.arrived(1, 0.0, WALL)
    assert not waits.is_idle(9999.0)


@pytest.mark.parametrize(
    ("by", "data", "key"),
    [
        (["id"], {"id": "cam-1"}, "cam-1"),
        (["id"], {}, ""),
        (["id", "data:door"], {"id": "cam-1", "data": {"door": 7}}, "cam-1\t7"),
        (["tag"], {}, "site/a"),
        (["tag"], {"tag": "salt/minion/x/start"}, "salt/minion/x/start"),
        ([], {"id": "cam-1"}, ""),
    ],
)
def test_a_key_is_made_of_what_by_names(by: list[str], data: dict[str, Any], key: str) -> None:
    assert key_of(an_event("site/a", data), by) == key


def test_a_long_key_is_told_apart_and_short() -> None:
    keys = {key_of(an_event("a", {"id": "x" * 5000 + end}), ["id"]) for end in "ab"}
    assert len(keys) == 2
    assert all(len(key) < 100 for key in keys)


def test_what_is_said_of_a_file_counts_before_what_is_said_of_the_rule() -> None:
    rule, file = Throttle(once_within=1.0), Throttle(once_within=2.0)
    throttles = {"site/*": rule, "/etc/r/*.sls": file}
    assert throttle_of(throttles, "site/*", "/etc/r/a.sls") is file
    assert throttle_of(throttles, "site/*", "salt://a.sls") is rule
    assert throttle_of(throttles, "site/a", "salt://a.sls") is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"once_within": 0}, "once_within"),
        ({"accumulate": {}}, "count, seconds or both"),
        ({"accumulate": {"count": 2}, "once_after": 1}, "do not go together"),
        ({"once_withn": 1}, "once_withn"),
        ({"max_concurrent": 0}, "max_concurrent"),
    ],
)
def test_what_is_no_throttle_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        msgspec.convert(said, Throttle)
