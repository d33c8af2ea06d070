"""tests/chaos/coordinator.py: whatever is lost, twice, out of order or without an end is found, by its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.coordinator import Book, Coordinator, Evidence, Gap, Order, drops_beside

A, B, SITE = "master-a", "master-b", "lisbon"
JID = "20261121211116003098"
OUTCOMES = {JID: {"cam-1": "ok", "cam-2": "unreachable"}}


def told() -> Coordinator:
    coordinator = Coordinator()
    coordinator.fired(["e0-1", "e0-2"], "accepted")
    coordinator.fired(["e0-3"], "refused")
    coordinator.fired(["e0-4"], "unknown")
    coordinator.ordered(A, JID, "accepted")
    coordinator.ordered(B, "", "refused")
    return coordinator


def evidence(**changed: Any) -> Evidence:
    job = {JID: Order(closed=True, expected=2)}
    whole = Evidence(
        masters={A: Book(["e0-1"], job, OUTCOMES), B: Book(["e0-2", "e0-4"])},
        site_name=SITE,
        site=Book(["e0-1", "e0-2"], job, OUTCOMES, {JID: {"cam-1": 1, "cam-2": 0}}),
        reports={"swarm-0": {JID: {"devices": 1, "executions": 1, "most": 1}}},
    )
    return replace(whole, **changed)


def rules(found: Evidence, coordinator: Coordinator | None = None) -> list[str]:
    return [finding.rule for finding in (coordinator or told()).reconcile(found)]


def masters(events_a: Sequence[str], events_b: Sequence[str]) -> dict[str, Book]:
    job = {JID: Order(closed=True, expected=2)}
    return {A: Book(events_a, job, OUTCOMES), B: Book(events_b)}


def test_a_run_in_which_everything_holds_has_no_finding() -> None:
    assert rules(evidence()) == []
    assert rules(evidence(verified=True, delivered={"events": 2}, received={"events": 3})) == []


@pytest.mark.parametrize(
    ("events_a", "events_b", "found"),
    [
        (["e0-1"], [], ["events_lost"]),
        (["e0-1", "e0-2"], ["e0-1", "e0-2"], []),
        (["e0-1", "e0-2", "e0-1"], [], ["events_twice"]),
        (["e0-2", "e0-1"], [], ["events_order"]),
        (["e0-2"], ["e0-1"], []),
        (["e0-1", "e0-2", "e0-3"], [], ["events_refused"]),
    ],
)
def test_events_are_there_once_and_in_order(events_a: list[str], events_b: list[str], found: list[str]) -> None:
    assert rules(evidence(masters=masters(events_a, events_b))) == found


def test_an_event_may_be_missing_where_the_ledger_names_a_drop() -> None:
    lost = masters(["e0-1"], [])
    assert rules(evidence(masters=lost, drops={"events": {"disk_full": 1}})) == []
    (finding,) = told().reconcile(evidence(masters=lost, drops={"audit": {"disk_full": 9}}))
    assert finding.ids == ["e0-2"]
    assert "e0-2" in str(finding)


def test_of_a_state_the_newest_has_to_be_there() -> None:
    coordinator = told()
    coordinator.fired(["0s-1", "0s-2"], "accepted", "state/a")
    coordinator.fired(["0s-3"], "refused", "state/a")
    coordinator.fired(["0s-4"], "accepted", "state/b")
    coordinator.fired(["0s-5"], "unknown", "state/b")
    dropped = {"events": {"coalesced": 9}}
    assert rules(evidence(masters=masters(["e0-1", "e0-2", "0s-2"], []), drops=dropped), coordinator) == []
    (finding,) = coordinator.reconcile(evidence(masters=masters(["e0-1", "e0-2", "0s-1"], []), drops=dropped))
    assert (finding.rule, finding.ids) == ("events_lost", ["0s-2"])


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"drops": {"returns": {"disk_full": 1}}}, ["returns_dropped"]),
        ({"drops_outside": ["3 events between 1 and 2 s"]}, ["drops_outside"]),
        ({"verified": False, "verify_words": "events: 3 counted, 2 found"}, ["ledger"]),
        ({"delivered": {"events": 4}, "received": {"events": 3}}, ["received"]),
        ({"endings": ["lisbon with status 1"]}, ["ended"]),
        ({"undrained": "3 items wait"}, ["undrained"]),
        ({"reports": {"swarm-0": {JID: {"devices": 1, "executions": 2, "most": 2}}}}, ["ran_twice"]),
        ({"site": Book([], {}, OUTCOMES, {JID: {"cam-1": 2}})}, ["ran_twice"]),
        ({"site": Book([], {}, {JID: {"cam-1": "ok", "cam-3": "ok"}})}, ["owner_differs", "returns_lost"]),
        ({"site": Book([], {}, {"2": {"cam-1": "ok"}})}, ["returns_lost"]),
    ],
)
def test_whatever_else_does_not_hold_is_named(changed: dict[str, Any], found: list[str]) -> None:
    assert rules(evidence(**changed)) == found


@pytest.mark.parametrize(
    ("orders", "outcomes", "found"),
    [
        ({}, OUTCOMES, ["job_missing"]),
        ({JID: Order(closed=False, expected=0)}, OUTCOMES, ["job_open"]),
        ({JID: Order(closed=True, expected=3)}, OUTCOMES, ["job_outcomes"]),
        (
            {JID: Order(closed=True, expected=2)},
            {JID: {"cam-1": "site_dark", "cam-2": "unreachable"}},
            ["owner_differs", "returns_lost"],
        ),
    ],
)
def test_a_job_ends_at_its_owner_with_one_outcome_for_each_device(
    orders: dict[str, Order], outcomes: dict[str, dict[str, str]], found: list[str]
) -> None:
    books = {A: Book(["e0-1", "e0-2"], orders, outcomes), B: Book()}
    assert rules(evidence(masters=books)) == found


def test_a_drop_counts_against_the_time_in_which_it_was_seen_to_come() -> None:
    key = ("events", "disk_full")
    samples = [(0.0, {}), (5.0, {key: 2}), (10.0, {key: 2}), (15.0, {key: 3}), (30.0, {key: 4})]
    assert drops_beside(samples, [(4, 8)], slack=6) == ["1 events (disk_full) between 15 and 30 s"]
    assert drops_beside(samples, [], slack=0)[0] == "2 events (disk_full) between 0 and 5 s"
    assert drops_beside([(0.0, {}), (5.0, {("events", "coalesced"): 7})], [], slack=0) == []


def times(coordinator: Coordinator, **at: float) -> Coordinator:
    coordinator.at.update({name.replace("_", "-"): second for name, second in at.items()})
    return coordinator


def test_what_a_store_that_went_back_had_may_be_said_again_and_nothing_that_came_later() -> None:
    coordinator = times(told(), e0_1=10.0, e0_2=30.0)
    again = masters(["e0-2", "e0-1", "e0-1"], ["e0-2"])
    assert rules(evidence(masters=again), coordinator) == ["events_twice", "events_order"]
    coordinator.went_back(Gap(20.0, 20.5))
    assert rules(evidence(masters=again), coordinator) == []
    assert rules(evidence(masters=masters(["e0-1", "e0-2", "e0-2"], [])), coordinator) == ["events_twice"]


@pytest.mark.parametrize(
    ("gap", "found"),
    [
        (Gap(19.5, 20.5), []),
        (Gap(21.5, 22.0), ["events_lost"]),
        (Gap(21.5, 22.0, whole=True), []),
        (Gap(19.5, 20.5, copied=True), ["events_lost"]),
    ],
)
def test_what_may_be_lost_without_a_count_is_as_old_as_the_pages_say(gap: Gap, found: list[str]) -> None:
    coordinator = times(told(), e0_1=1.0, e0_2=20.0)
    coordinator.went_back(gap)
    assert rules(evidence(masters=masters(["e0-1"], [])), coordinator) == found
    # What the ledger counts needs no such excuse.
    assert rules(evidence(masters=masters(["e0-1"], []), drops={"events": {"damage": 1}}), coordinator) == []


@pytest.mark.parametrize(
    ("outcome", "owner", "found"),
    [
        ("unknown", "ok", []),
        ("expired", "cancelled", []),
        ("unreachable", "ok", ["owner_differs", "returns_lost"]),
    ],
)
def test_a_store_that_went_back_says_unknown_of_what_may_have_run(outcome: str, owner: str, found: list[str]) -> None:
    coordinator = times(told(), **{JID: 10.0})
    coordinator.went_back(Gap(20.0, 20.5))
    books = {A: Book(["e0-1", "e0-2"], {JID: Order(True, 1)}, {JID: {"cam-1": owner}}), B: Book()}
    site = Book([], {}, {JID: {"cam-1": outcome}})
    assert rules(evidence(masters=books, site=site), coordinator) == found


@pytest.mark.parametrize(
    ("outcome", "times", "found"),
    [
        ("ok", 1, []),
        ("unknown", 1, []),
        ("unknown", 0, []),
        ("expired", 0, []),
        ("ok", 2, ["ran_twice"]),
        ("unknown", 2, ["ran_twice"]),
        ("ok", 0, ["ran_never"]),
        ("expired", 1, ["ran_denied"]),
    ],
)
def test_what_an_ssh_device_ran_is_what_the_outcome_says(outcome: str, times: int, found: list[str]) -> None:
    coordinator = told()
    coordinator.ordered(A, "2", "accepted", "load-1")
    jobs = {JID: Order(closed=True, expected=2), "2": Order(closed=True, expected=1)}
    outcomes = {**OUTCOMES, "2": {"ssh-0": outcome}}
    books = {A: Book(["e0-1"], jobs, outcomes), B: Book(["e0-2", "e0-4"])}
    assert rules(evidence(masters=books, ran={"load-1": times}), coordinator) == found


def test_many_ids_are_named_up_to_a_bound() -> None:
    coordinator = Coordinator()
    coordinator.fired([f"e0-{number:03d}" for number in range(100)], "accepted")
    (finding,) = coordinator.reconcile(Evidence(masters={A: Book()}, site_name=SITE, site=Book()))
    assert "e0-000" in str(finding)
    assert str(finding).endswith("and 80 more")
    assert "100 accepted" in coordinator.tally()
