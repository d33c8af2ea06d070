"""upstream/failover.py."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.failover import (
    Action,
    Activate,
    Deactivate,
    Down,
    Event,
    Listed,
    MasterType,
    Rules,
    State,
    Tick,
    Up,
    echo_every,
    next_look,
    silence_limit,
    step,
)

NAMES = ("a", "b", "c", "d")


@dataclass
class Watched:
    """Steps a state, and fails when a promise of every step is broken."""

    state: State = field(default_factory=State)
    fed: list[str] = field(default_factory=list)
    """Who is active, by what the actions said."""
    up: dict[str, float] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)

    def step(self, event: Event) -> list[Action]:
        before = self.state.active
        match event:
            case Up(master=master, at=at) if master in self.state.masters:
                self.up.setdefault(master, at)
            case Down(master=master):
                self.up.pop(master, None)
            case Listed(masters=masters):
                self.up = {master: since for master, since in self.up.items() if master in masters}
            case _:
                pass
        self.state, actions = step(self.state, event)
        for action in actions:
            if isinstance(action, Deactivate):
                assert self.fed == [action.master], "who is put out was active"
                self.fed.clear()
            else:
                assert not self.fed, "two were active"
                self.fed.append(action.master)
                self.history.append(action.master)
        assert self.fed == ([self.state.active] if self.state.active is not None else [])
        assert self.state.active is None or self.state.active in self.up, "the active one is up"
        self._failback_waits(before, event.at)
        return actions

    def _failback_waits(self, before: str | None, now: float) -> None:
        """One that is up gives way to a better one alone, and not before it has been up for its time."""
        rules, after = self.state.rules, self.state.active
        if rules.master_type != "failover" or before not in self.up or before == after:
            return
        assert rules.failback
        assert after is not None
        assert self.state.masters.index(after) < self.state.masters.index(before)
        assert now - self.up[after] >= rules.failback_interval


def watched(
    master_type: MasterType = "failover", masters: str = "abc", *, failback: bool = False, interval: float = 0.0
) -> Watched:
    made = Watched(State(rules=Rules(master_type, failback, interval)))
    made.step(Listed(tuple(masters), 0.0))
    return made


rules = st.builds(
    Rules, st.sampled_from(["str", "failover", "hot"]), st.booleans(), st.floats(min_value=0.0, max_value=30.0)
)
names = st.sampled_from(NAMES)
lists = st.permutations(NAMES).flatmap(lambda order: st.integers(0, len(NAMES)).map(lambda n: tuple(order[:n])))
kinds = st.one_of(
    names.map(lambda name: ("up", name)),
    names.map(lambda name: ("down", name)),
    lists.map(lambda listed: ("listed", listed)),
    st.just(("tick", None)),
)
scripts = st.lists(st.tuples(kinds, st.floats(min_value=0.0, max_value=20.0)), max_size=60)


def events_of(script: list[tuple[tuple[str, object], float]]) -> list[Event]:
    now, events = 0.0, list[Event]()
    for (kind, what), passes in script:
        now += passes
        match kind:
            case "up":
                events.append(Up(str(what), now))
            case "down":
                events.append(Down(str(what), now))
            case "listed":
                assert isinstance(what, tuple)
                events.append(Listed(what, now))
            case _:
                events.append(Tick(now))
    return events


@given(rules, lists, scripts)
def test_whatever_happens_at_most_one_is_active_and_it_is_up(
    chosen: Rules, listed: tuple[str, ...], script: list[tuple[tuple[str, object], float]]
) -> None:
    made = Watched(State(rules=chosen))
    made.step(Listed(listed, 0.0))
    for event in events_of(script):
        made.step(event)


@given(rules, lists.filter(len), scripts, st.data())
def test_with_any_one_master_up_some_master_is_active_as_soon_as_the_others_have_been_heard_of(
    chosen: Rules, listed: tuple[str, ...], script: list[tuple[tuple[str, object], float]], data: st.DataObject
) -> None:
    made = Watched(State(rules=chosen))
    events = [event for event in events_of(script) if not isinstance(event, Listed)]
    made.step(Listed(listed, 0.0))
    for event in events:
        made.step(event)
    now = events[-1].at if events else 0.0
    alive = data.draw(st.sampled_from(listed))
    for other in listed:
        if other != alive:
            made.step(Down(other, now))
    made.step(Up(alive, now))
    assert made.state.active == alive


@given(rules, lists, scripts)
def test_a_look_that_is_announced_changes_something_and_none_is_needed_before(
    chosen: Rules, listed: tuple[str, ...], script: list[tuple[tuple[str, object], float]]
) -> None:
    made = Watched(State(rules=chosen))
    made.step(Listed(listed, 0.0))
    for event in events_of(script):
        made.step(event)
        due = next_look(made.state)
        if due is None:
            assert step(made.state, Tick(event.at + 1e9)) == (made.state, [])
            continue
        if due - 0.5 > event.at:
            assert step(made.state, Tick(due - 0.5))[1] == []
        assert step(made.state, Tick(due + 1e-6))[1] != []


@pytest.mark.parametrize("master_type", ["str", "failover", "hot"])
@pytest.mark.parametrize("failback", [False, True])
def test_ten_thousand_flips(master_type: MasterType, failback: bool) -> None:
    seed = 20261122
    source = random.Random(seed)
    made = watched(master_type, "abc", failback=failback, interval=5.0)
    now, flips = 0.0, 0
    while flips < 10_000:
        now += source.uniform(0.0, 4.0)
        master = source.choice("abc")
        events: list[Event] = [Up(master, now), Down(master, now), Tick(now)]
        event = source.choice(events)
        flips += any(isinstance(action, Activate) for action in made.step(event))
        if made.up and made.state.begun:
            assert made.state.active is not None
    assert set(made.history) == set("abc")


def test_at_the_start_the_first_of_the_list_that_answers_is_active() -> None:
    made = watched()
    assert made.step(Up("b", 1.0)) == [], "the first may only be slower"
    assert made.step(Up("a", 2.0)) == [Activate("a")]


def test_at_the_start_one_that_does_not_answer_is_passed_over() -> None:
    made = watched()
    assert made.step(Up("c", 1.0)) == []
    assert made.step(Down("a", 5.0)) == []
    assert made.step(Down("b", 6.0)) == [Activate("c")]


def test_the_next_one_that_is_up_takes_over_at_once_and_the_list_is_recycled() -> None:
    made = watched()
    for name in "abc":
        made.step(Up(name, 1.0))
    for round_ in range(3):
        for lost, following in ("ab", "bc", "ca"):
            assert made.step(Down(lost, 2.0 + round_)) == [Deactivate(lost), Activate(following)]
            assert made.step(Up(lost, 2.0 + round_)) == []


def test_with_all_away_it_waits_and_takes_the_first_that_is_back() -> None:
    made = watched()
    for name in "abc":
        made.step(Up(name, 1.0))
    for name in "cb":
        assert made.step(Down(name, 2.0)) == []
    assert made.step(Down("a", 2.0)) == [Deactivate("a")]
    assert made.step(Tick(1e6)) == []
    assert made.step(Up("c", 1e6)) == [Activate("c")]


def test_without_failback_the_better_one_stays_at_rest() -> None:
    made = watched()
    made.step(Up("a", 1.0))
    made.step(Up("b", 1.0))
    made.step(Down("a", 2.0))
    made.step(Up("a", 3.0))
    assert next_look(made.state) is None
    assert made.step(Tick(1e6)) == []


def test_failback_when_the_better_one_has_been_up_for_the_interval_without_a_break() -> None:
    made = watched(failback=True, interval=10.0)
    made.step(Up("a", 1.0))
    made.step(Up("b", 1.0))
    assert made.step(Down("a", 2.0)) == [Deactivate("a"), Activate("b")]
    made.step(Up("a", 3.0))
    assert next_look(made.state) == 13.0
    assert made.step(Tick(12.9)) == []
    made.step(Down("a", 12.9))
    made.step(Up("a", 13.0))
    assert made.step(Tick(22.9)) == []
    assert made.step(Tick(23.0)) == [Deactivate("b"), Activate("a")]


def test_an_interval_of_zero_is_failback_as_soon_as_it_is_seen_up() -> None:
    made = watched(failback=True)
    made.step(Up("a", 1.0))
    made.step(Up("b", 1.0))
    made.step(Down("a", 2.0))
    assert made.step(Up("a", 3.0)) == [Deactivate("b"), Activate("a")]


@pytest.mark.parametrize("master_type", ["str", "hot"])
def test_in_hot_mode_the_first_that_is_up_is_fed(master_type: MasterType) -> None:
    made = watched(master_type)
    assert made.step(Up("b", 1.0)) == [Activate("b")]
    assert made.step(Up("c", 1.0)) == []
    assert made.step(Up("a", 1.0)) == [Deactivate("b"), Activate("a")]
    assert made.step(Down("a", 2.0)) == [Deactivate("a"), Activate("b")]


def test_another_list_keeps_the_active_one_when_it_stays() -> None:
    made = watched()
    made.step(Up("a", 1.0))
    assert made.step(Listed(("c", "a"), 2.0)) == []
    made.step(Up("c", 3.0))
    assert made.step(Listed(("c",), 4.0)) == [Deactivate("a"), Activate("c")]
    assert made.step(Listed((), 5.0)) == [Deactivate("c")]
    assert made.step(Up("c", 6.0)) == [], "one that is not in the list"


@pytest.mark.parametrize(
    ("echo", "alive", "master_type", "limit", "every"),
    [
        (5.0, None, "str", 15.0, 5.0),
        (5.0, None, "hot", 15.0, 5.0),
        (5.0, None, "failover", 30.0, 5.0),
        (5.0, 0.0, "failover", 15.0, 5.0),
        (5.0, 6.0, "failover", 6.0, 2.0),
        (5.0, 60.0, "hot", 60.0, 5.0),
    ],
)
def test_how_long_silence_may_last(
    echo: float, alive: float | None, master_type: MasterType, limit: float, every: float
) -> None:
    assert silence_limit(echo, alive, master_type) == limit
    assert echo_every(echo, limit) == every
