"""device_agent/schedule/entries.py and moments.py: Salt's fields are read, and what is wrong is said with its place."""

from __future__ import annotations

from datetime import UTC, date, time
from typing import Any

import pytest

from device_agent.schedule.entries import ENTRIES, ScheduleInvalid, entries, entry
from device_agent.schedule.moments import Moment, moment
from device_agent.schedule.settings import refuse_wrong


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("5:00pm", Moment(time(17))),
        ("5pm", Moment(time(17))),
        ("12am", Moment(time(0))),
        ("17:00:30", Moment(time(17, 0, 30))),
        ("Monday 5:00pm", Moment(time(17), 0)),
        ("tue", Moment(time(0), 1)),
        ("Monday at 5 pm", Moment(time(17), 0)),
        ("2026-11-23", Moment(time(0), day=date(2026, 11, 23))),
        ("2026-11-23T17:00:00", Moment(time(17), day=date(2026, 11, 23))),
        ("2026-11-23 5pm", Moment(time(17), day=date(2026, 11, 23))),
        ("11/23/2026 5pm", Moment(time(17), day=date(2026, 11, 23))),
        ("Nov 23 2026 5pm", Moment(time(17), day=date(2026, 11, 23))),
        ("23rd November, 2026", Moment(time(0), day=date(2026, 11, 23))),
        ("2026-11-23T17:00:00Z", Moment(time(17), day=date(2026, 11, 23), zone=UTC)),
    ],
)
def test_times_are_read_as_people_write_them(text: str, meant: Moment) -> None:
    assert moment(text) == meant


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "5", "13pm", "17:00@", "5pm 6pm", "Nov 2026", "2026-13-01", "0026-01-01", None, 1020],
)
def test_what_is_no_time_is_refused(text: Any) -> None:
    with pytest.raises(ValueError):
        moment(text)


def test_every_field_of_salt_is_taken() -> None:
    found = entry(
        "e",
        {
            "function": "state.apply",
            "job_args": ["site"],
            "job_kwargs": {"test": True},
            "minutes": "2",
            "hours": 1,
            "splay": {"start": 5, "end": 10},
            "range": {"start": "8:00am", "end": "5:00pm"},
            "skip_during_range": {"start": "12:00", "end": "13:00"},
            "run_after_skip_range": True,
            "after": "2026-01-01T00:00:00",
            "until": "2027-01-01T00:00:00",
            "run_on_start": False,
            "maxrunning": 2,
            "jid_include": "true",
            "return_job": "nocache",
            "enabled": True,
            "run_missed": True,
            "metadata": {"why": "audit"},
            "name": "e",
            "_seconds": 7,
        },
        UTC,
    )
    assert (found.seconds, found.splay, found.maxrunning) == (3720.0, (5, 10), 2)
    assert (found.arg, found.kwarg) == (["site"], {"test": True})
    assert (found.run_on_start, found.return_job, found.jid_include) == (False, True, True)


def test_an_interval_runs_at_the_start_and_nothing_else_does() -> None:
    assert entry("e", {"function": "test.ping", "seconds": 5}, UTC).run_on_start
    assert not entry("e", {"function": "test.ping", "when": "5pm"}, UTC).run_on_start


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("test.ping", "schedule.e"),
        ({"seconds": 5}, "schedule.e.function"),
        ({"function": "ping", "seconds": 5}, "schedule.e.function"),
        ({"function": "runner.jobs.active", "seconds": 5}, "schedule.e.function"),
        ({"function": "test.ping"}, "schedule.e"),
        ({"function": "test.ping", "seconds": 0}, "schedule.e.seconds"),
        ({"function": "test.ping", "seconds": "often"}, "schedule.e.seconds"),
        ({"function": "test.ping", "seconds": 5, "when": "5pm"}, "schedule.e"),
        ({"function": "test.ping", "cron": "* * * *"}, "schedule.e.cron"),
        ({"function": "test.ping", "cron": "61 * * * *"}, "schedule.e.cron"),
        ({"function": "test.ping", "cron": 5}, "schedule.e.cron"),
        ({"function": "test.ping", "when": "teatime"}, "schedule.e.when"),
        ({"function": "test.ping", "when": []}, "schedule.e.when"),
        ({"function": "test.ping", "once": "tomorrow"}, "schedule.e.once"),
        ({"function": "test.ping", "seconds": 5, "splay": -1}, "schedule.e.splay"),
        ({"function": "test.ping", "seconds": 5, "splay": {"start": 9, "end": 3}}, "schedule.e.splay"),
        ({"function": "test.ping", "seconds": 5, "range": "8am"}, "schedule.e.range"),
        ({"function": "test.ping", "seconds": 5, "range": {"start": "8am"}}, "schedule.e.range"),
        ({"function": "test.ping", "seconds": 5, "range": {"start": "x", "end": "9am"}}, "schedule.e.range.start"),
        ({"function": "test.ping", "seconds": 5, "until": "5pm"}, "schedule.e.until"),
        ({"function": "test.ping", "seconds": 5, "maxrunning": 0}, "schedule.e.maxrunning"),
        ({"function": "test.ping", "seconds": 5, "enabled": "maybe"}, "schedule.e.enabled"),
        ({"function": "test.ping", "seconds": 5, "job_args": "x"}, "schedule.e.job_args"),
        ({"function": "test.ping", "seconds": 5, "job_kwargs": []}, "schedule.e.job_kwargs"),
        ({"function": "test.ping", "seconds": 5, "job_args": [10**30]}, "schedule.e.job_args"),
        ({"function": "test.ping", "seconds": 5, "job_kwargs": {"a": "\ud800"}}, "schedule.e.job_kwargs"),
        ({"function": "test.ping", "seconds": 5, "metadata": {"a": {"b": 10**30}}}, "schedule.e.metadata"),
        ({"function": "test.ping", "seconds": 5, "returner": "mysql"}, "schedule.e.returner"),
        ({"function": "test.ping", "seconds": 5, "target": "*"}, "schedule.e.target"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_what_was_found_and_what_is_allowed(written: Any, place: str) -> None:
    with pytest.raises(ScheduleInvalid) as caught:
        entry("e", written, UTC)
    assert (caught.value.where, bool(caught.value.found), bool(caught.value.allowed)) == (place, True, True)


def test_what_stands_for_all_entries_counts_where_an_entry_says_nothing() -> None:
    found = entries(
        {
            "enabled": False,
            "splay": 10,
            "a": {"function": "test.ping", "seconds": 5},
            "b": {"function": "test.ping", "seconds": 5, "splay": 3},
        },
        UTC,
    )
    assert {name: each.splay for name, each in found.items()} == {"a": (1, 10), "b": (1, 3)}
    assert all(each.enabled for each in found.values())


def test_a_schedule_has_a_bound() -> None:
    written = {f"e{number}": {"function": "test.ping", "seconds": 5} for number in range(ENTRIES + 1)}
    with pytest.raises(ScheduleInvalid, match="too many"):
        entries(written, UTC)


def test_a_station_has_targets_and_runners() -> None:
    found = entry("e", {"function": "runner.jobs.active", "seconds": 5}, UTC, "station")
    assert found.function == "runner.jobs.active"
    found = entry("e", {"function": "test.ping", "seconds": 5, "target": ["a", "b"]}, UTC, "station")
    assert (found.target, found.target_type) == ("a,b", "list")


def test_settings_name_the_line_of_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"schedule.e.cron: found '\* \*'.*\$\.schedule\.e\.cron`$"):
        refuse_wrong({"e": {"function": "test.ping", "cron": "* *"}}, None)
    with pytest.raises(ValueError, match="timezone"):
        refuse_wrong({}, "Europe/Atlantis")
