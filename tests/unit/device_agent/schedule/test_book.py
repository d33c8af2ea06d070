"""device_agent/schedule/book.py: what counts before what, what is kept, and what the pillar may not."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from device_agent.schedule.book import ScheduleBook
from device_agent.schedule.entries import ENTRIES, ScheduleInvalid

PING: dict[str, Any] = {"function": "test.ping", "seconds": 60}


def book(settings: dict[str, Any] | None = None, pillar: object = None) -> ScheduleBook:
    made = ScheduleBook(settings or {}, UTC)
    made.take_pillar({} if pillar is None else pillar)
    return made


def test_an_entry_of_the_settings_counts_before_one_of_the_pillar() -> None:
    made = book({"a": PING}, {"a": {**PING, "seconds": 5}, "b": PING})
    assert {name: each.seconds for name, each in made.entries().items()} == {"a": 60.0, "b": 60.0}
    assert [made.is_pillar(name) for name in ("a", "b")] == [False, True]
    assert list(made.written("opts")) == ["a"]
    assert sorted(made.written("pillar")) == ["a", "b"]


def test_a_wrong_entry_of_the_pillar_harms_itself_alone() -> None:
    made = book({}, {"good": PING, "bad": {"function": "test.ping", "cron": "*"}, "odd": 5})
    assert list(made.entries()) == ["good"]
    assert "pillar schedule.bad.cron" in made.errors["bad"]
    assert "odd" in made.errors


def test_a_pillar_whose_schedule_is_no_mapping_has_none() -> None:
    made = book({"a": PING})
    assert not made.take_pillar([PING])
    assert "schedule" in made.errors
    assert list(made.entries()) == ["a"]


def test_changes_are_kept_or_gone_at_the_next_start() -> None:
    made = book({"a": PING, "b": PING})
    made.put("c", PING, "", persist=True)
    made.put("d", PING, "", persist=False)
    made.remove("a", persist=True)
    made.switch("b", on=False, persist=True)
    made.switch(None, on=False, persist=False)
    assert sorted(made.entries()) == ["b", "c", "d"]
    assert not made.entries()["b"].enabled
    assert not made.enabled
    again = book({"a": PING, "b": PING})
    again.restore(made.saved, {})
    assert sorted(again.entries()) == ["b", "c"]
    assert again.enabled
    made.revert()
    assert sorted(made.entries()) == ["b", "c"]


def test_saving_keeps_what_was_not_kept() -> None:
    made = book()
    made.put("d", PING, "changes", persist=False)
    made.save()
    made.revert()
    assert list(made.entries()) == ["d"]
    assert made.saved.reach == {"d": "changes"}


def test_what_is_wrong_is_not_taken_and_there_is_a_bound() -> None:
    made = book()
    with pytest.raises(ScheduleInvalid):
        made.put("x", {"function": "test.ping"}, "", persist=True)
    for number in range(ENTRIES):
        made.put(f"e{number}", PING, "", persist=True)
    with pytest.raises(ScheduleInvalid, match="too many"):
        made.put("one more", PING, "", persist=True)
    made.put("e0", {**PING, "seconds": 5}, "", persist=True)


def test_what_is_written_cannot_be_changed_from_outside() -> None:
    made = book({"a": PING})
    made.written()["a"]["function"] = "cmd.run"
    assert made.written()["a"]["function"] == "test.ping"


def test_the_pillar_says_for_all_its_entries_where_the_settings_do_not() -> None:
    made = book({}, {"enabled": False, "splay": 30, "a": PING})
    assert not made.enabled
    assert made.entries()["a"].splay == (1, 30)
