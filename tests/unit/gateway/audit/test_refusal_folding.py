"""Refusals of a caller who may do nothing: which become a row of the audit at once, and which are counted."""

from __future__ import annotations

from dataclasses import replace

from gateway.audit import folding
from gateway.audit.deed import Deed
from gateway.audit.folding import RefusalFolding
from tests.peers.clock import HandClock

REFUSED = Deed(user="eve", door="socket", action="cancel", subject="job 1", verdict="deny", why="eve is a viewer")


def test_equal_refusals_share_one_row_with_their_number() -> None:
    clock = HandClock()
    refusals = RefusalFolding(clock)
    assert [refusals.take(REFUSED) for _ in range(1000)] == [True] + [False] * 999
    assert refusals.due() == []
    clock.move(folding.WINDOW_SECONDS)
    assert refusals.due() == [replace(REFUSED, times=999)]
    assert refusals.due() == []


def test_subjects_that_the_caller_makes_up_do_not_make_rows() -> None:
    clock = HandClock()
    refusals = RefusalFolding(clock)
    written = sum(refusals.take(replace(REFUSED, subject=f"{number:04}")) for number in range(5000))
    assert written == folding.DISTINCT
    clock.move(folding.WINDOW_SECONDS)
    (row,) = refusals.due()
    assert (row.user, row.action, row.times) == ("eve", "cancel", 5000 - folding.DISTINCT)
    assert row.why.endswith("the first of 4980 refusals that are not shown one by one")


def test_every_refusal_is_counted_once_however_long_it_goes_on_and_the_rows_get_fewer() -> None:
    clock = HandClock()
    refusals = RefusalFolding(clock)
    counted = rows = 0
    for second in range(36_000):
        if refusals.take(replace(REFUSED, subject=str(second))):
            counted, rows = counted + 1, rows + 1
        clock.move(1)
        for row in refusals.due():
            counted, rows = counted + row.times, rows + 1
    counted += sum(row.times for row in refusals.due(all_of_them=True))
    assert counted == 36_000
    # 50 at once, one in ten minutes, and one for each window; the last windows are an hour long.
    assert rows <= 50 + 60 + 16


def test_another_action_and_another_user_are_counted_apart() -> None:
    clock = HandClock()
    refusals = RefusalFolding(clock)
    deeds = [REFUSED, replace(REFUSED, action="release"), replace(REFUSED, user="mallory")]
    assert [refusals.take(deed) for deed in deeds * 2] == [True] * 3 + [False] * 3
    clock.move(folding.WINDOW_SECONDS)
    assert refusals.due() == [replace(deed, times=1) for deed in deeds]


def test_a_caller_with_thousands_of_user_ids_makes_no_more_rows() -> None:
    clock = HandClock()
    refusals = RefusalFolding(clock)
    users = 65_536
    written = sum(refusals.take(replace(REFUSED, user=f"uid {number}")) for number in range(users))
    assert written <= folding.WINDOWS
    clock.move(folding.WINDOW_SECONDS)
    rows = refusals.due()
    assert written + sum(row.times for row in rows) == users
    assert [row.user for row in rows] == [folding.SEVERAL_USERS]


def test_who_was_quiet_for_a_window_has_a_row_again() -> None:
    clock = HandClock()
    refusals = RefusalFolding(clock)
    assert refusals.take(REFUSED)
    clock.move(folding.WINDOW_SECONDS)
    assert refusals.due() == []
    assert refusals.take(REFUSED)
