"""How many devices are logged in to at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.downlinks import ssh_width
from gateway.downlinks.ssh_width import FLOOR, START, Dropped, Made, Width, initial, step

CEILING = 64


def after(state: Width, *events: Made | Dropped) -> Width:
    for event in events:
        state = step(state, event)
    return state


def test_it_doubles_with_each_round_while_all_is_quick() -> None:
    state = after(initial(CEILING), *[Made(0.05, crowded=True)] * int(START))
    assert state.places == 2 * START


def test_it_never_passes_the_ceiling_of_the_settings() -> None:
    assert after(initial(CEILING), *[Made(0.05, crowded=True)] * 1000).places == CEILING
    assert initial(1).places == 1
    assert after(initial(1), Dropped(1.0, 2.0)).places == 1


def test_it_does_not_grow_while_nobody_waits() -> None:
    assert after(initial(CEILING), *[Made(0.05, crowded=False)] * 1000).limit == START


def test_slow_logins_do_not_let_it_grow_and_end_the_doubling() -> None:
    state = after(initial(CEILING), Made(0.1, crowded=True), Made(5.0, crowded=True))
    assert state.limit == START + 1
    assert not state.doubling


def test_a_dropped_login_halves_it_once_for_all_that_began_before() -> None:
    state = after(initial(CEILING), Dropped(1.0, 5.0))
    assert state.limit == START / 2
    assert after(state, Dropped(4.9, 5.1)).limit == START / 2
    assert after(state, Dropped(5.1, 6.0)).limit == START / 4


def test_after_a_drop_it_grows_by_one_a_round() -> None:
    state = after(initial(CEILING), Dropped(1.0, 5.0))
    grown = after(state, *[Made(0.05, crowded=True)] * state.places)
    assert state.limit < grown.limit <= state.limit + 1


@given(
    st.lists(
        st.one_of(
            st.builds(Made, st.floats(min_value=0, max_value=100), st.booleans()),
            st.builds(Dropped, st.floats(min_value=0, max_value=100), st.floats(min_value=0, max_value=100)),
        )
    )
)
def test_whatever_happens_some_may_log_in_and_never_too_many(events: list[Made | Dropped]) -> None:
    assert FLOOR <= after(ssh_width.initial(CEILING), *events).limit <= CEILING
