"""How many devices of a site are connected to at once: more while that goes quickly, half when connections are dropped.

Additive increase, multiplicative decrease, after a start that doubles (V. Jacobson, "Congestion Avoidance and Control",
1988). Pure: times are given.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

FLOOR: Final = 2.0
START: Final = 16.0
QUICK_SECONDS: Final = 1.0
"""A login that takes longer than this, and than twice the usual, says that there are too many at once."""

SLOW_FACTOR: Final = 2.0
MEMORY: Final = 0.1
"""The weight of the newest login in what is usual."""


class Width(NamedTuple):
    """The state. ``limit`` is how many may be under way; ``shrunk`` when it last became less."""

    limit: float
    ceiling: float
    usual: float = 0.0
    shrunk: float = -math.inf
    doubling: bool = True

    @property
    def places(self) -> int:
        """How many logins may be under way."""
        return int(self.limit)


class Made(NamedTuple):
    """A login succeeded. ``crowded``: others waited for their turn."""

    seconds: float
    crowded: bool


class Dropped(NamedTuple):
    """A device that answered before hung up, or was silent, while it was logged in to; it began then."""

    began: float
    now: float


def initial(ceiling: int) -> Width:
    """The width to begin with."""
    return Width(min(START, float(ceiling)), float(ceiling))


def step(state: Width, event: Made | Dropped) -> Width:
    """The state after a login."""
    match event:
        case Made(seconds, crowded):
            usual = seconds if not state.usual else state.usual + MEMORY * (seconds - state.usual)
            quick = seconds <= max(QUICK_SECONDS, SLOW_FACTOR * state.usual)
            if not quick or not crowded:
                return state._replace(usual=usual, doubling=state.doubling and quick)
            gain = 1.0 if state.doubling else 1.0 / state.limit
            return state._replace(usual=usual, limit=min(state.ceiling, state.limit + gain))
        case Dropped(began, now):
            if began <= state.shrunk:
                # It began when there were more: that was answered already.
                return state
            return state._replace(limit=max(min(FLOOR, state.ceiling), state.limit / 2), shrunk=now, doubling=False)
