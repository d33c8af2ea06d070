"""Which master now: a pure state machine over the ordered list. It does no I/O and reads no clock.

``step(state, event)`` gives the next state and what to do. Today's rule is the plain one: walk the list in order,
start over at its end, and wait before each new round; the wait doubles with the rounds, up to a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


class Event(Enum):
    """What happened on the link to the current master."""

    STARTED = auto()
    WELCOMED = auto()
    LOST = auto()
    NO_ANSWER = auto()


@dataclass(frozen=True)
class State:
    """Where in the list of ``count`` masters we are. ``round`` counts full walks without a welcome."""

    count: int
    current: int = 0
    round: int = 0
    tried: int = 0


@dataclass(frozen=True)
class Connect:
    """Connect to the master at this place; when ``after_round`` is not zero, wait first (backoff)."""

    index: int
    after_round: int


@dataclass(frozen=True)
class Stay:
    """Keep using the current master."""


Action = Connect | Stay


def step(state: State, event: Event) -> tuple[State, Action]:
    """The next state and the one thing to do now."""
    match event:
        case Event.STARTED:
            return State(count=state.count), Connect(0, 0)
        case Event.WELCOMED:
            return replace(state, round=0, tried=0), Stay()
        case Event.LOST:
            # A master that worked a moment ago is asked again first: most losses are a short cut of the line.
            return replace(state, round=1, tried=0), Connect(state.current, 1)
        case Event.NO_ANSWER:
            tried = state.tried + 1
            following = (state.current + 1) % state.count
            if tried >= state.count:
                grown = replace(state, current=following, tried=0, round=state.round + 1)
                return grown, Connect(following, grown.round)
            return replace(state, current=following, tried=tried), Connect(following, 0)
