"""Which master is fed: a pure state machine over the ordered list of masters. It does no I/O and reads no clock.

A gateway has a link to every master; each of them may order. ACTIVE is the one that gets the spool, at most one at a
time. ``step(state, event)`` gives the next state and what to do; times come with the events.

``hot``: the first of the list that is up is active. ``failover``: the first that answers is active until it is lost,
then the next one of the list that is up, round and round; with ``failback`` a master that stands before the active one
takes its place again when it has been up for ``failback_interval``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

SILENT_ECHOES = 3
DEFAULT_ALIVE_SECONDS = 30.0

MasterType = Literal["str", "failover", "hot"]


@dataclass(frozen=True)
class Rules:
    """How the active master is chosen. As in Salt, ``str`` with a list is ``hot``."""

    master_type: MasterType = "str"
    failback: bool = False
    failback_interval: float = 0.0


@dataclass(frozen=True)
class Up:
    """A master gave its welcome."""

    master: str
    at: float


@dataclass(frozen=True)
class Down:
    """The link to a master is lost, or an attempt to reach it has failed."""

    master: str
    at: float


@dataclass(frozen=True)
class Listed:
    """From now on these are the masters, best first."""

    masters: tuple[str, ...]
    at: float


@dataclass(frozen=True)
class Tick:
    """Time has passed."""

    at: float


Event = Up | Down | Listed | Tick


@dataclass(frozen=True)
class Activate:
    """This master gets the spool from now on."""

    master: str


@dataclass(frozen=True)
class Deactivate:
    """This one does not get it any more."""

    master: str


Action = Activate | Deactivate


@dataclass(frozen=True)
class State:
    """What is known of the masters. ``up`` has the time since when each of those that are up is."""

    rules: Rules = Rules()
    masters: tuple[str, ...] = ()
    up: tuple[tuple[str, float], ...] = ()
    active: str | None = None
    heard_of: frozenset[str] = frozenset()
    """Masters that have answered, or failed to, at least once."""
    begun: bool = False
    """Some master has been active."""
    last: str | None = None
    """The one that was active last."""


def step(state: State, event: Event) -> tuple[State, list[Action]]:
    """The next state, and what to do now."""
    match event:
        case Up(master=master, at=at):
            if master in state.masters and master not in dict(state.up):
                state = replace(state, up=(*state.up, (master, at)), heard_of=state.heard_of | {master})
        case Down(master=master):
            if master in state.masters:
                state = replace(state, up=_without(state.up, {master}), heard_of=state.heard_of | {master})
        case Listed(masters=masters):
            gone = set(state.masters) - set(masters)
            state = replace(
                state, masters=masters, up=_without(state.up, gone), heard_of=state.heard_of.intersection(masters)
            )
        case Tick():
            pass
    wanted = _wanted(state, event.at)
    if wanted == state.active:
        return state, []
    actions: list[Action] = [Deactivate(state.active)] if state.active is not None else []
    if wanted is not None:
        actions.append(Activate(wanted))
    return (
        replace(state, active=wanted, begun=state.begun or wanted is not None, last=wanted or state.active),
        actions,
    )


def next_look(state: State) -> float | None:
    """When a ``Tick`` would change something, should nothing else happen; None for never."""
    if state.rules.master_type != "failover" or not state.rules.failback or state.active is None:
        return None
    since = dict(state.up)
    better = [since[master] for master in _before(state, state.active) if master in since]
    return min(better) + state.rules.failback_interval if better else None


def silence_limit(echo_seconds: float, alive_interval: float | None, master_type: MasterType) -> float:
    """How long a master may say nothing before its link is lost."""
    if alive_interval is None:
        alive_interval = DEFAULT_ALIVE_SECONDS if master_type == "failover" else 0.0
    return alive_interval or echo_seconds * SILENT_ECHOES


def echo_every(echo_seconds: float, limit: float) -> float:
    """How often to ask, so that one answer that comes late does not cost the link."""
    return min(echo_seconds, limit / SILENT_ECHOES)


def _wanted(state: State, now: float) -> str | None:
    since = dict(state.up)
    up = [master for master in state.masters if master in since]
    if not up:
        return None
    if state.rules.master_type != "failover":
        return up[0]
    if state.active in since:
        if not state.rules.failback:
            return state.active
        rested = (
            master
            for master in _before(state, state.active)
            if master in since and now - since[master] >= state.rules.failback_interval
        )
        return next(rested, state.active)
    if not state.begun and not state.heard_of.issuperset(_before(state, up[0])):
        # At the start a better one may only be slower: it is waited for until it has answered or failed to.
        return None
    # The one after the last active one is next, and after the end of the list comes its start.
    place = state.masters.index(state.last) + 1 if state.last in state.masters else 0
    return next(master for master in (*state.masters[place:], *state.masters[:place]) if master in since)


def _before(state: State, master: str | None) -> tuple[str, ...]:
    return state.masters[: state.masters.index(master)] if master in state.masters else ()


def _without(up: tuple[tuple[str, float], ...], gone: Iterable[str]) -> tuple[tuple[str, float], ...]:
    return tuple(entry for entry in up if entry[0] not in gone)
