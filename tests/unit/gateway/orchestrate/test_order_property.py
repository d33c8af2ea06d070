"""Whatever steps there are: none comes before what it requires, and a round of requisites is refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.orchestrate.ordering import compiled
from gateway.orchestrate.words import REQUISITES, Draft, SlsFile

FILE = SlsFile(env="base", sls="orch.f", path="orch/f.sls", data={})
ORDERS = st.one_of(st.none(), st.integers(-50, 50), st.sampled_from(["first", "last", "soon", True, 1.5]))


def draft(number: int, order: object, wanted: list[tuple[str, int]]) -> Draft:
    said = [(kind, "test", f"s{other}") for kind, other in wanted]
    return Draft(
        id=f"s{number}", name=f"s{number}", state="test", fun="nop", file=FILE, args={}, wanted=said, order=order
    )


@st.composite
def graphs(draw: st.DrawFn, *, rounds: bool) -> list[Draft]:
    count = draw(st.integers(1, 12))
    place = draw(st.permutations(range(count)))
    found = []
    for number in range(count):
        others = [other for other in range(count) if rounds or place[other] < place[number]]
        kinds = st.tuples(st.sampled_from(REQUISITES), st.sampled_from(others)) if others else st.nothing()
        found.append(draft(number, draw(ORDERS), draw(st.lists(kinds, max_size=4)) if others else []))
    return found


def has_round(drafts: list[Draft]) -> bool:
    left = {each.id: {name for _, _, name in each.wanted} for each in drafts}
    while free := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in free}
    return bool(left)


@given(graphs(rounds=False))
def test_no_step_comes_before_what_it_requires(drafts: list[Draft]) -> None:
    steps, errors = compiled(drafts)
    assert errors == []
    assert sorted(step.id for step in steps) == sorted(each.id for each in drafts)
    assert [step.number for step in steps] == list(range(len(steps)))
    for step in steps:
        assert all(requisite.step < step.number for requisite in step.requisites)
    wanted = {each.id: {name for _, _, name in each.wanted} for each in drafts}
    assert {step.id: {steps[each.step].id for each in step.requisites} for step in steps} == wanted


@given(graphs(rounds=True))
def test_a_round_is_refused_and_nothing_else_is(drafts: list[Draft]) -> None:
    steps, errors = compiled(drafts)
    if has_round(drafts):
        assert steps == []
        assert "Recursive requisites were found" in errors[0]
    else:
        assert errors == []
        assert len(steps) == len(drafts)


@given(graphs(rounds=False))
def test_the_order_is_the_same_each_time(drafts: list[Draft]) -> None:
    assert compiled(drafts) == compiled(list(drafts))
