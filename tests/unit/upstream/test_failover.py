"""upstream/failover.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.failover import Action, Connect, Event, State, Stay, step

NO, LOST, WELCOME = Event.NO_ANSWER, Event.LOST, Event.WELCOMED


def walk(count: int, events: Sequence[Event]) -> list[Action]:
    """What is done at the start and after each event."""
    state, action = step(State(count=count), Event.STARTED)
    actions = [action]
    for event in events:
        state, action = step(state, event)
        actions.append(action)
    return actions


@pytest.mark.parametrize(
    ("count", "events", "actions"),
    [
        (1, [], [Connect(0, 0)]),
        (1, [NO, NO, NO], [Connect(0, 0), Connect(0, 1), Connect(0, 2), Connect(0, 3)]),
        (3, [NO, NO], [Connect(0, 0), Connect(1, 0), Connect(2, 0)]),
        (
            2,
            [NO, NO, NO, NO, NO],
            [Connect(0, 0), Connect(1, 0), Connect(0, 1), Connect(1, 0), Connect(0, 2), Connect(1, 0)],
        ),
        (3, [NO, WELCOME], [Connect(0, 0), Connect(1, 0), Stay()]),
        # The one that was lost is asked again first, and from there the walk goes through the whole list.
        (3, [NO, WELCOME, LOST], [Connect(0, 0), Connect(1, 0), Stay(), Connect(1, 1)]),
        (
            3,
            [NO, WELCOME, LOST, NO, NO, NO],
            [Connect(0, 0), Connect(1, 0), Stay(), Connect(1, 1), Connect(2, 0), Connect(0, 0), Connect(1, 2)],
        ),
    ],
)
def test_a_walk_goes_in_the_order_of_the_list(count: int, events: list[Event], actions: list[Action]) -> None:
    assert walk(count, events) == actions


def test_a_welcome_forgets_the_failed_rounds() -> None:
    *_, last = walk(2, [NO] * 10 + [WELCOME, LOST])
    assert isinstance(last, Connect)
    assert last.after_round == 1


def test_starting_over_forgets_everything() -> None:
    assert step(State(count=3, current=2, round=7, tried=1), Event.STARTED) == (State(count=3), Connect(0, 0))


EVENTS = st.lists(st.sampled_from([NO, LOST, WELCOME]), max_size=60)


@given(st.integers(1, 16), EVENTS)
def test_every_place_is_in_the_list_whatever_happens(count: int, events: list[Event]) -> None:
    for action in walk(count, events):
        assert isinstance(action, Stay) or 0 <= action.index < count


@given(st.integers(1, 16), EVENTS)
def test_every_master_is_asked_in_each_round_without_an_answer(count: int, before: list[Event]) -> None:
    actions = walk(count, [*before, *[NO] * count])
    asked = {action.index for action in actions[-count:] if isinstance(action, Connect)}
    assert asked == set(range(count))


@given(st.integers(1, 16), EVENTS)
def test_no_round_follows_another_without_a_wait(count: int, before: list[Event]) -> None:
    actions = walk(count, [*before, *[NO] * (3 * count)])[len(before) + 1 :]
    waited = [action.after_round for action in actions if isinstance(action, Connect) and action.after_round]
    assert len(waited) == 3
    assert waited == sorted(waited)
    assert waited[0] < waited[-1]
