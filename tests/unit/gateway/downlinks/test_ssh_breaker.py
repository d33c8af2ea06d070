"""When a device that was not reached is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.downlinks import ssh_breaker
from gateway.downlinks.ssh_breaker import (
    AWAITED_CEILING_SECONDS,
    CEILING_SECONDS,
    CLOSED,
    FIRST_SECONDS,
    SETTLED,
    SETTLED_CEILING_SECONDS,
    SETTLED_FIRST_SECONDS,
    Breaker,
    Changed,
    Failed,
    Succeeded,
    may_try,
    step,
)


def failing(*reasons: str, draw: float = 1.0) -> Breaker:
    state = CLOSED
    for reason in reasons:
        state = step(state, Failed(100.0, reason, "said so", draw))
    return state


def test_nothing_is_known_against_a_device_at_first() -> None:
    assert may_try(CLOSED, 0.0)
    assert CLOSED.why == ""


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2.0), (2, 4.0), (3, 8.0), (6, 60.0), (40, 60.0)])
def test_each_failure_doubles_the_wait_up_to_a_minute(failures: int, seconds: float) -> None:
    state = failing(*["no_route"] * failures)
    assert state.until == 100.0 + seconds
    assert not may_try(state, state.until - 0.1)
    assert may_try(state, state.until)


def test_what_only_an_operator_mends_is_tried_rarely() -> None:
    assert failing("login_refused").until == 100.0 + SETTLED_FIRST_SECONDS
    assert failing(*["login_refused"] * 9).until == 100.0 + SETTLED_CEILING_SECONDS


def test_another_kind_of_failure_begins_with_its_own_first_wait() -> None:
    assert failing(*["login_refused"] * 5, "no_route").until == 100.0 + FIRST_SECONDS
    assert failing(*["no_route"] * 5, "timed_out").failures == 6


def test_the_reason_is_told_in_one_line() -> None:
    assert failing("no_route").why == "no_route: said so"


def test_success_forgets_and_a_change_lets_it_be_tried_with_the_reason_kept() -> None:
    state = failing("host_key_changed")
    assert step(state, Succeeded()) == CLOSED
    changed = step(state, Changed())
    assert may_try(changed, 0.0)
    assert changed.reason == "host_key_changed"


def test_a_device_that_restarts_is_tried_every_few_seconds_and_not_doomed_by_what_it_says_meanwhile() -> None:
    state = CLOSED
    for _ in range(20):
        state = step(state, Failed(100.0, "connection_refused", "", 1.0, awaited=True))
    assert state.until == 100.0 + AWAITED_CEILING_SECONDS
    refused = step(CLOSED, Failed(100.0, "login_refused", "", 1.0, awaited=True))
    assert refused.until == 100.0 + FIRST_SECONDS
    for _ in range(20):
        refused = step(refused, Failed(100.0, "login_refused", "", 1.0, awaited=True))
    assert refused.until == 100.0 + CEILING_SECONDS
    assert step(state, Failed(100.0, "connection_refused", "", 1.0)).until == 100.0 + CEILING_SECONDS


@given(
    st.integers(min_value=0, max_value=2000),
    st.sampled_from(["no_route", "timed_out", *sorted(SETTLED)]),
    st.floats(min_value=0, max_value=1),
)
def test_a_wait_is_by_chance_between_half_and_all_of_its_bound(failures: int, reason: str, draw: float) -> None:
    seconds = ssh_breaker.wait(failures, reason, draw)
    most = SETTLED_CEILING_SECONDS if reason in SETTLED else CEILING_SECONDS
    assert FIRST_SECONDS / 2 <= seconds <= most
