"""device_agent/schedule/timing.py: due times rise, agree in both directions, and heed the clocks of a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.schedule.entries import Entry, entry
from device_agent.schedule.timing import barred, last_due, next_due, splay

LISBON = ZoneInfo("Europe/Lisbon")
ZONES = st.sampled_from(["UTC", "Europe/Lisbon", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
DST_YEARS = st.floats(datetime(2025, 1, 1, tzinfo=UTC).timestamp(), datetime(2028, 1, 1, tzinfo=UTC).timestamp())
CLOCKS = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
WEEKDAYS = st.sampled_from(["Monday", "tue", "Wed", "thursday", "Fri", "sat", "Sunday"])
CRON = st.builds(
    "{} {} {} * {}".format,
    st.sampled_from(["*", "0", "30", "*/15", "5,35", "10-20/5"]),
    st.sampled_from(["*", "2", "*/3", "1-3", "0,23"]),
    st.sampled_from(["*", "1", "*/7"]),
    st.sampled_from(["*", "mon-fri", "0", "6"]),
)
RHYTHMS = st.one_of(
    st.builds(lambda line: {"cron": line}, CRON),
    st.builds(lambda times: {"when": times}, st.lists(CLOCKS, min_size=1, max_size=3)),
    st.builds(lambda day, clock: {"when": f"{day} {clock}"}, WEEKDAYS, CLOCKS),
    st.builds(lambda seconds: {"seconds": seconds}, st.integers(1, 200_000)),
)


def made(zone: Any = LISBON, **fields: Any) -> Entry:
    return entry("e", {"function": "test.ping", **fields}, zone)


def at(text: str, zone: Any = LISBON) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def fires(of: Entry, after: float, count: int) -> list[str]:
    found = []
    for _ in range(count):
        due = next_due(of, after, 0.0)
        assert due is not None
        found.append(datetime.fromtimestamp(due, LISBON).strftime("%m-%d %H:%M %Z"))
        after = due
    return found


@given(RHYTHMS, ZONES, DST_YEARS)
def test_due_times_rise_and_none_comes_twice(rhythm: dict[str, Any], zone: str, start: float) -> None:
    of = made(ZoneInfo(zone), **rhythm)
    after, found = start, []
    for _ in range(12):
        due = next_due(of, after, start)
        assert due is not None
        assert due > after
        found.append(due)
        after = due
    assert found == sorted(set(found))


@given(RHYTHMS, ZONES, DST_YEARS)
def test_the_last_due_time_is_one_that_was_due(rhythm: dict[str, Any], zone: str, start: float) -> None:
    of = made(ZoneInfo(zone), **rhythm)
    due = next_due(of, start, start)
    assert due is not None
    following = next_due(of, due, start)
    assert following is not None
    found = last_due(of, due + 0.5, start)
    assert found is not None
    # In the hour that clocks repeat the times of cron are looked back at by what the clocks say.
    assert found == pytest.approx(due, abs=0.01) or found < due < following


@given(DST_YEARS, st.integers(0, 600), st.integers(0, 600), st.text(max_size=20))
def test_a_splay_stays_within_its_bounds_and_is_the_same_again(due: float, low: int, more: int, device: str) -> None:
    of = made(seconds=60, splay={"start": low, "end": low + more})
    drawn = splay(of, due, device)
    assert low <= drawn <= low + more
    assert drawn == splay(of, due, device)


def test_a_splay_of_one_number_begins_at_one_as_in_salt() -> None:
    of = made(seconds=60, splay=5)
    drawn = {splay(of, float(due), "cam") for due in range(500)}
    assert drawn == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_devices_are_splayed_apart() -> None:
    of = made(cron="0 4 * * *", splay=3600)
    assert len({splay(of, 1e9, f"cam-{number}") for number in range(50)}) > 40


def test_a_time_that_clocks_skip_comes_once_and_late() -> None:
    # 2026-03-29 01:00 becomes 02:00 in Lisbon.
    for of in (made(when="01:30"), made(cron="30 1 * * *")):
        days = fires(of, at("2026-03-28 12:00"), 3)
        assert [day[:5] for day in days] == ["03-29", "03-30", "03-31"]
        assert days[0].endswith("WEST")
        assert [day[6:11] for day in days[1:]] == ["01:30", "01:30"]


def test_a_time_that_clocks_repeat_comes_once() -> None:
    # 2026-10-25 02:00 becomes 01:00 in Lisbon.
    for of in (made(when="01:30"), made(cron="30 1 * * *")):
        assert fires(of, at("2026-10-24 12:00"), 3) == ["10-25 01:30 WEST", "10-26 01:30 WET", "10-27 01:30 WET"]


def test_every_half_hour_goes_on_in_both_of_the_repeated_hours() -> None:
    of = made(cron="*/30 * * * *")
    assert fires(of, at("2026-10-25 00:45"), 6) == [
        "10-25 01:00 WEST",
        "10-25 01:30 WEST",
        "10-25 01:00 WET",
        "10-25 01:30 WET",
        "10-25 02:00 WET",
        "10-25 02:30 WET",
    ]


def test_an_interval_counts_time_and_not_clocks() -> None:
    of, start = made(hours=1), at("2026-10-25 00:00")
    dues = [next_due(of, start + turn * 3600, start) for turn in range(4)]
    assert dues == [start + turn * 3600 for turn in range(1, 5)]


def test_weekdays_and_lists_of_times() -> None:
    of = made(when=["Monday 5:00pm", "Tuesday 3:00pm", "5:30am"])
    assert fires(of, at("2026-11-23 12:00"), 4) == [
        "11-23 17:00 WET",
        "11-24 05:30 WET",
        "11-24 15:00 WET",
        "11-25 05:30 WET",
    ]


def test_a_date_comes_once() -> None:
    of = made(when="2026-11-24 17:00")
    due = at("2026-11-24 17:00")
    assert next_due(of, due - 1, 0.0) == due
    assert next_due(of, due, 0.0) is None
    assert last_due(of, due, 0.0) == due
    assert last_due(of, due - 1, 0.0) is None


@pytest.mark.parametrize(
    ("bound", "wall", "reason"),
    [
        ({"range": {"start": "8:00am", "end": "5:00pm"}}, "2026-11-23 12:00", ""),
        ({"range": {"start": "8:00am", "end": "5:00pm"}}, "2026-11-23 18:00", "not_in_range"),
        ({"range": {"start": "8:00am", "end": "5:00pm", "invert": True}}, "2026-11-23 12:00", "not_in_range"),
        ({"range": {"start": "8:00am", "end": "5:00pm", "invert": True}}, "2026-11-23 18:00", ""),
        ({"range": {"start": "22:00", "end": "06:00"}}, "2026-11-23 23:00", ""),
        ({"range": {"start": "22:00", "end": "06:00"}}, "2026-11-23 05:00", ""),
        ({"range": {"start": "22:00", "end": "06:00"}}, "2026-11-23 12:00", "not_in_range"),
        ({"skip_during_range": {"start": "8:00am", "end": "5:00pm"}}, "2026-11-23 12:00", "in_skip_range"),
        ({"skip_during_range": {"start": "2026-12-24", "end": "2026-12-27"}}, "2026-12-25 12:00", "in_skip_range"),
        ({"skip_during_range": {"start": "2026-12-24", "end": "2026-12-27"}}, "2026-12-28 12:00", ""),
        ({"until": "2026-11-23T12:00:00"}, "2026-11-23 12:00", "until_passed"),
        ({"until": "2026-11-23T12:00:00"}, "2026-11-23 11:59", ""),
        ({"after": "2026-11-23T12:00:00"}, "2026-11-23 12:00", "after_not_passed"),
        ({"after": "2026-11-23T12:00:00"}, "2026-11-23 12:01", ""),
        ({"enabled": False}, "2026-11-23 12:01", "disabled"),
    ],
)
def test_what_keeps_an_entry_from_running_is_said_in_salts_words(bound: dict[str, Any], wall: str, reason: str) -> None:
    assert barred(made(seconds=60, **bound), at(wall)) == reason


@pytest.mark.parametrize(
    ("zone", "start", "end", "walls"),
    [
        # 2026-03-08 02:00 becomes 03:00: no clock shows 02:30, and what is left of the span is what clocks show of it.
        ("America/New_York", "2:30am", "3:15am", {"2026-03-08T07:10Z": True, "2026-03-08T07:20Z": False}),
        ("America/New_York", "2:30am", "3:15am", {"2026-03-08T06:50Z": False, "2026-03-08T17:00Z": False}),
        # 2026-11-01 02:00 becomes 01:00: clocks show 01:30 twice.
        ("America/New_York", "1:15am", "1:45am", {"2026-11-01T05:30Z": True, "2026-11-01T06:30Z": True}),
        ("America/New_York", "1:15am", "1:45am", {"2026-11-01T05:50Z": False, "2026-11-01T06:50Z": False}),
        # 2026-10-04 02:00 becomes 02:30, half an hour.
        ("Australia/Lord_Howe", "2:10am", "2:35am", {"2026-10-03T15:32Z": True, "2026-10-03T15:40Z": False}),
        ("Australia/Lord_Howe", "2:10am", "2:35am", {"2026-10-03T15:20Z": False, "2026-10-04T02:00Z": False}),
    ],
)
def test_a_span_is_what_clocks_show_also_on_the_day_on_which_they_change(
    zone: str, start: str, end: str, walls: dict[str, bool]
) -> None:
    of = made(ZoneInfo(zone), seconds=60, range={"start": start, "end": end})
    found = {wall: not barred(of, datetime.fromisoformat(wall).timestamp()) for wall in walls}
    assert found == walls


def test_a_span_that_clocks_show_twice_is_over_twice() -> None:
    of = made(ZoneInfo("America/New_York"), seconds=60, skip_during_range={"start": "1:15am", "end": "1:45am"})
    assert of.skip_during_range is not None
    for inside, over in (("2026-11-01T05:30Z", "2026-11-01T05:45Z"), ("2026-11-01T06:30Z", "2026-11-01T06:45Z")):
        asked = datetime.fromisoformat(inside).timestamp()
        assert of.skip_during_range.over(asked, of.zone) == datetime.fromisoformat(over).timestamp()


@given(st.floats(0, 4e9))
def test_midnight_of_any_zone_is_found_for_any_clock(wall: float) -> None:
    of = made(ZoneInfo("Pacific/Apia"), when="00:00")
    due = next_due(of, wall, 0.0)
    assert due is not None
    assert 0 < due - wall <= timedelta(hours=49).total_seconds()
