"""tests/chaos/plan.py: the faults of a run are those of its seed, and none is in another's way."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.chaos.plan import CALM, LINKS, WARM, Fault, draw, once, sorts, undisturbed, windows

SEEDS = range(60)


def test_a_seed_is_a_plan() -> None:
    assert draw(7, 40, 900, 4) == draw(7, 40, 900, 4)
    assert draw(7, 40, 900, 4) != draw(8, 40, 900, 4)


@pytest.mark.parametrize(("count", "seconds"), [(6, 90), (10, 180), (40, 600), (40, 900), (150, 3600)])
def test_every_fault_is_drawn_and_ends_in_time(count: int, seconds: float) -> None:
    for seed in SEEDS:
        plan = draw(seed, count, seconds, 4)
        assert len(plan) == count
        assert plan == sorted(plan, key=lambda fault: fault.start)
        assert plan[0].start >= seconds * WARM
        assert max(fault.end for fault in plan) <= seconds * (1 - CALM) + 0.1
        assert all(fault.seconds > 0 for fault in plan)


def test_more_faults_than_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match="do not fit into 10 seconds"):
        draw(1, 400, 10, 4)


def test_a_long_run_sees_every_sort() -> None:
    for seed in SEEDS:
        plan = draw(seed, 40, 900, 4)
        assert {(fault.kind, fault.subject) for fault in plan} == {(sort.kind, sort.subject) for sort in sorts(4)}
        assert len({fault.way for fault in plan if fault.kind == "cut"}) == 2


def test_nothing_is_broken_twice_at_once_and_different_things_are() -> None:
    together = 0
    for seed in SEEDS:
        for one, other in combinations(draw(seed, 40, 900, 4), 2):
            overlap = one.start < other.end and other.start < one.end
            together += overlap
            assert not (overlap and one.touches & other.touches)
    assert together > len(SEEDS)


def test_a_broker_takes_its_gateway_with_it_and_a_pair_of_links_is_both() -> None:
    assert Fault(0, 1, "kill", "broker").touches == Fault(0, 1, "kill", "gateway").touches
    assert Fault(0, 1, "cut", "links").touches == {"link-a", "link-b"} == set(LINKS["links"])
    assert Fault(0, 1, "kill", "swarm", "2").touches == {"swarm-2", "swarms"}


def test_the_windows_of_a_kind_are_when_its_faults_are() -> None:
    plan = [Fault(1, 2, "fill", "disk"), Fault(4, 1, "kill", "gateway"), Fault(9, 3, "fill", "disk")]
    assert windows(plan, {"fill"}) == [(1, 3), (9, 12)]


def test_the_shortest_plan_has_every_sort_once_and_is_short() -> None:
    for seed in SEEDS:
        plan = once(seed, 3)
        assert len(plan) == len(sorts(3))
        assert {(fault.kind, fault.subject) for fault in plan} == {(sort.kind, sort.subject) for sort in sorts(3)}
        for one, other in combinations(plan, 2):
            assert not (one.start < other.end and other.start < one.end and one.touches & other.touches)
        assert max(fault.end for fault in plan) < 95


def test_how_long_a_fault_is_alone_with_the_gateway() -> None:
    cut = Fault(10, 10, "cut", "link-a", "down")
    assert undisturbed(cut, [cut]) == 10
    plan = [cut, Fault(0, 11, "kill", "gateway"), Fault(13, 2, "kill", "broker"), Fault(12, 9, "disk", "gateway")]
    assert undisturbed(cut, plan) == 5
