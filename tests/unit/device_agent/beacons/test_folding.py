"""What a beacon says again and again is said once and counted; what is news is said at once."""

from __future__ import annotations

from device_agent.beacons.folding import KEPT, Folding, data_of
from device_agent.beacons.given import Options
from device_agent.beacons.port import Found


def said(folding: Folding, *found: Found, at: float) -> list[tuple[str, int]]:
    return [(each.found.about or each.found.tag, each.repeats) for each in folding.sieve(found, at)]


def test_it_is_said_at_once_then_after_the_fold_with_the_count_and_at_once_when_it_is_another() -> None:
    folding = Folding(Options(fold=60), momentary=False)
    root = Found({"diskusage": 81}, about="/")
    assert said(folding, root, at=0) == [("/", 0)]
    assert said(folding, root, at=10) == said(folding, root, at=59) == []
    assert said(folding, root, at=60) == [("/", 2)]
    assert said(folding, root, Found({}, about="/var"), at=61) == [("/var", 0)]
    assert said(folding, Found({}, about="/", same="other"), Found({}, about="/var"), at=62) == [("/", 1)]


def test_what_was_over_and_comes_again_is_news_and_brings_the_count_of_before() -> None:
    folding = Folding(Options(fold=60), momentary=False)
    root = Found({}, about="/")
    assert said(folding, root, at=0) == [("/", 0)]
    assert said(folding, root, at=1) == said(folding, root, at=2) == []
    assert said(folding, at=3) == []
    assert said(folding, root, at=4) == [("/", 2)]
    assert said(folding, at=5) == []
    assert said(folding, root, at=6) == [("/", 0)]


def test_onchangeonly_says_nothing_twice_and_nothing_of_the_first_look_without_emitatstartup() -> None:
    folding = Folding(Options(onchangeonly=True, emitatstartup=False, fold=1), momentary=False)
    root = Found({}, about="/")
    assert said(folding, root, at=0) == said(folding, root, at=1000) == []
    assert said(folding, root, Found({}, about="/var"), at=2000) == [("/var", 0)]
    again = Folding(Options(onchangeonly=True), momentary=False)
    assert said(again, root, at=0) == [("/", 0)]
    assert said(again, root, at=10_000) == []


def test_the_last_of_what_is_momentary_is_said_when_its_time_is_over() -> None:
    folding = Folding(Options(fold=60), momentary=True)
    line = Found({}, tag="login")
    assert said(folding, line, at=0) == [("login", 0)]
    assert said(folding, line, line, at=1) == said(folding, at=2) == said(folding, line, at=59) == []
    assert said(folding, at=60) == [("login", 2)]
    assert said(folding, at=61) == []
    assert said(folding, line, at=62) == [("login", 0)]
    assert said(folding, at=200) == []


def test_without_a_fold_everything_is_said() -> None:
    folding = Folding(Options(fold=0), momentary=False)
    assert [said(folding, Found({}, about="/"), at=number) for number in range(3)] == [[("/", 0)]] * 3


def test_what_did_not_get_out_is_said_at_the_next_look() -> None:
    folding = Folding(Options(onchangeonly=True), momentary=False)
    root = Found({}, about="/")
    [first] = folding.sieve([root], 0)
    folding.unsaid(first.found)
    assert said(folding, root, at=1) == [("/", 0)]
    assert said(folding, root, at=2) == []


def test_what_is_told_apart_is_bounded() -> None:
    folding = Folding(Options(), momentary=True)
    for number in range(3 * KEPT):
        folding.sieve([Found({}, about=str(number))], 0.0)
    assert len(folding._known) == KEPT


def test_the_data_are_flat_with_the_device_unless_the_beacon_says_another() -> None:
    folding = Folding(Options(fold=0), momentary=False)
    [first] = folding.sieve([Found({"a": 1}, tag="x")], 0)
    assert data_of(first, "cam-1") == ("x", {"id": "cam-1", "a": 1})
    [other] = folding.sieve([Found({"id": "door"}, about="o")], 0)
    assert data_of(other._replace(repeats=3), "cam-1") == ("", {"id": "door", "_repeats": 3})
