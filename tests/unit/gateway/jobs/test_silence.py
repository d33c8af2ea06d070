"""gateway/jobs/silence.py."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.protocol.outcomes import Outcome, State
from gateway.jobs.silence import (
    BEHIND_CEILING_SECONDS,
    WINDOW,
    Presence,
    SiteStanding,
    Terms,
    Verdict,
    judge_device,
    judge_site,
    site_never_answered,
    soonest,
)

DEADLINE = 1000.0
LIMIT = 60.0
HERE = Presence(present=True, unheard=False, gone=0.0)
UNHEARD = Presence(present=False, unheard=True, gone=0.0)

QUEUED, DELIVERED, RUNNING = State.QUEUED, State.DELIVERED, State.RUNNING


def left(when: float) -> Presence:
    """A device that went at this time."""
    return Presence(present=False, unheard=False, gone=when)


def terms(**changed: Any) -> Terms:
    """The terms of an ordinary job, with changes."""
    given: dict[str, Any] = {"deadline": DEADLINE, "late": "drop", "run_limit": LIMIT, "cancelled": False, **changed}
    return Terms(**given)


LATE = terms(late="run")
CANCELLED = terms(cancelled=True)
HELD = terms(held=True)
END_DELIVERED = DEADLINE + WINDOW
END_RUNNING = DEADLINE + LIMIT + WINDOW


def heard(presence: Presence, since: float) -> Presence:
    """The same device, on a link from which the station takes all that arrives since then."""
    return replace(presence, heard_since=since)


@pytest.mark.parametrize(("state", "end"), [(DELIVERED, END_DELIVERED), (RUNNING, END_RUNNING)])
def test_an_answer_that_may_wait_unread_is_waited_for(state: State, end: float) -> None:
    """While the station is behind, and then for as long as a device takes to say it again."""
    now = end + 100
    assert judge_device(state, 0, terms(), heard(HERE, now), now) == now + WINDOW
    assert judge_device(state, 0, terms(), heard(HERE, end + 80), now) == end + 80 + WINDOW
    assert isinstance(judge_device(state, 0, terms(), heard(HERE, now - WINDOW), now), Verdict)
    assert isinstance(judge_device(state, 0, terms(), heard(HERE, end - WINDOW), end), Verdict)
    # A station that never keeps up ends the job all the same.
    last = end + BEHIND_CEILING_SECONDS
    assert judge_device(state, 0, terms(), heard(HERE, last - 1), last - 1) == last
    assert isinstance(judge_device(state, 0, terms(), heard(HERE, last), last), Verdict)


def test_a_device_that_went_may_have_come_back_unread() -> None:
    gone, now = 500.0, 500.0 + WINDOW
    assert isinstance(judge_device(DELIVERED, 0, terms(), left(gone), now), Verdict)
    assert judge_device(DELIVERED, 0, terms(), heard(left(gone), now), now) == now + WINDOW


@pytest.mark.parametrize(
    ("state", "since", "job", "presence", "now", "judged"),
    [
        # Not sent yet: its turn comes while it may still come, and at the expiry that is over.
        (QUEUED, 0, terms(), HERE, 999.0, DEADLINE),
        (QUEUED, 0, terms(), UNHEARD, 999.0, DEADLINE),
        (QUEUED, 0, terms(), left(990), 999.0, Outcome.UNREACHABLE),
        (QUEUED, 0, terms(), HERE, DEADLINE, Outcome.UNREACHABLE),
        (QUEUED, 0, terms(), UNHEARD, DEADLINE, Outcome.UNREACHABLE),
        (QUEUED, 0, terms(), left(990), DEADLINE, Outcome.UNREACHABLE),
        (QUEUED, 0, LATE, left(10), 999.0, DEADLINE),
        (QUEUED, 0, LATE, HERE, DEADLINE, Outcome.EXPIRED),
        (QUEUED, 0, LATE, left(10), DEADLINE, Outcome.EXPIRED),
        (QUEUED, 0, CANCELLED, HERE, 1.0, Outcome.CANCELLED),
        (QUEUED, 0, terms(late="run", cancelled=True), left(10), 1.0, Outcome.CANCELLED),
        (QUEUED, 0, CANCELLED, HERE, 5000.0, Outcome.CANCELLED),
        # Held: wherever the device is, until the release or the expiry.
        (QUEUED, 0, HELD, HERE, 999.0, DEADLINE),
        (QUEUED, 0, HELD, left(10), 999.0, DEADLINE),
        (QUEUED, 0, HELD, HERE, DEADLINE, Outcome.EXPIRED),
        (QUEUED, 0, HELD, left(10), DEADLINE, Outcome.EXPIRED),
        (QUEUED, 0, terms(held=True, cancelled=True), HERE, 1.0, Outcome.CANCELLED),
        # Sent, and no word: whoever is here or may come back has until the expiry and some air.
        (DELIVERED, 10, terms(), HERE, 20.0, END_DELIVERED),
        (DELIVERED, 10, terms(), UNHEARD, 20.0, END_DELIVERED),
        (DELIVERED, 10, terms(), left(20), 20.0, 20 + WINDOW),
        (DELIVERED, 10, terms(), left(20), 20 + WINDOW - 0.1, 20 + WINDOW),
        (DELIVERED, 10, terms(), left(20), 20 + WINDOW, Outcome.UNKNOWN),
        (DELIVERED, 10, terms(), HERE, END_DELIVERED - 0.1, END_DELIVERED),
        (DELIVERED, 10, terms(), HERE, END_DELIVERED, Outcome.UNKNOWN),
        (DELIVERED, 10, terms(), left(DEADLINE), END_DELIVERED, Outcome.UNKNOWN),
        (DELIVERED, 1020, terms(), HERE, 1030.0, 1020 + WINDOW),
        (DELIVERED, 10, LATE, left(20), 500.0, END_DELIVERED),
        (DELIVERED, 10, LATE, left(20), END_DELIVERED, Outcome.UNKNOWN),
        (DELIVERED, 10, CANCELLED, HERE, 20.0, END_DELIVERED),
        (DELIVERED, 10, CANCELLED, left(20), 20 + WINDOW, Outcome.UNKNOWN),
        # It has started: its run limit counts from the expiry, which is the latest it may have started.
        (RUNNING, 10, terms(), HERE, DEADLINE, END_RUNNING),
        (RUNNING, 10, terms(), HERE, END_RUNNING - 0.1, END_RUNNING),
        (RUNNING, 10, terms(), HERE, END_RUNNING, Outcome.TIMED_OUT),
        (RUNNING, 10, terms(), UNHEARD, 20.0, END_RUNNING),
        (RUNNING, 10, terms(), left(20), 20.0, 20 + WINDOW),
        (RUNNING, 10, terms(), left(20), 20 + WINDOW, Outcome.UNKNOWN),
        (RUNNING, 10, LATE, left(20), 500.0, END_RUNNING),
        (RUNNING, 10, LATE, left(20), END_RUNNING, Outcome.TIMED_OUT),
        (RUNNING, 1020, terms(), HERE, 1030.0, 1020 + LIMIT + WINDOW),
        (RUNNING, 10, CANCELLED, HERE, 20.0, END_RUNNING),
    ],
)
def test_a_silent_device_is_judged_by_its_state_its_presence_and_the_terms(
    state: State, since: float, job: Terms, presence: Presence, now: float, judged: Outcome | float
) -> None:
    found = judge_device(state, since, job, presence, now)
    assert (found.outcome if isinstance(found, Verdict) else found) == judged


def site(
    *, sent: bool = True, answered: bool = False, dark: float | None = None, unheard: bool = False, here: float = 0.0
) -> SiteStanding:
    """How a site stands with a job; ``dark`` is since when."""
    return SiteStanding(sent=sent, answered=answered, dark_since=dark, unheard=unheard, here_since=here)


END_SITE = DEADLINE + LIMIT + 3 * WINDOW


@pytest.mark.parametrize(
    ("standing", "job", "now", "judged"),
    [
        # Before the expiry nothing is decided: it may still come.
        (site(sent=False, dark=0), terms(), 999.0, DEADLINE),
        (site(sent=False), terms(), 999.0, DEADLINE),
        (site(dark=0), terms(), 999.0, DEADLINE),
        (site(answered=True, dark=0), terms(), 999.0, DEADLINE),
        (site(answered=True), terms(), 999.0, DEADLINE),
        (site(sent=False), CANCELLED, 1.0, Outcome.CANCELLED),
        (site(sent=False, dark=0), CANCELLED, 1.0, Outcome.CANCELLED),
        (site(), CANCELLED, 1.0, DEADLINE),
        # It never said who would answer.
        (site(sent=False, dark=0), terms(), DEADLINE, Outcome.SITE_DARK),
        (site(sent=False, dark=0), LATE, DEADLINE, Outcome.EXPIRED),
        (site(sent=False), LATE, DEADLINE, Outcome.EXPIRED),
        (site(dark=0), terms(), DEADLINE, Outcome.SITE_DARK),
        (site(dark=0), LATE, DEADLINE, Outcome.SITE_DARK),
        (site(), terms(), DEADLINE, END_DELIVERED),
        (site(), terms(), END_DELIVERED - 0.1, END_DELIVERED),
        (site(), terms(), END_DELIVERED, Outcome.SITE_DARK),
        (site(sent=False), terms(), DEADLINE, END_DELIVERED),
        (site(sent=False), HELD, 999.0, DEADLINE),
        (site(sent=False), HELD, DEADLINE, Outcome.EXPIRED),
        (site(sent=False, dark=0), HELD, DEADLINE, Outcome.EXPIRED),
        (site(sent=False), terms(held=True, cancelled=True), 1.0, Outcome.CANCELLED),
        # The station has started anew after the expiry, and asks the site first.
        (site(dark=1990, unheard=True), terms(), 2000.0, 1990 + WINDOW),
        (site(dark=1990, unheard=True), terms(), 1990 + WINDOW, Outcome.SITE_DARK),
        (site(sent=False, dark=1990, unheard=True), LATE, 2000.0, 1990 + WINDOW),
        (site(sent=False, dark=1990, unheard=True), LATE, 1990 + WINDOW, Outcome.EXPIRED),
        (site(sent=False, here=2000), LATE, 2000.0, 2000 + WINDOW),
        (site(sent=False, here=2000), LATE, 2000 + WINDOW, Outcome.EXPIRED),
        (site(here=2000), terms(), 2000.0, 2000 + WINDOW),
        (site(here=2000), terms(), 2000 + WINDOW, Outcome.SITE_DARK),
        (site(answered=True, here=END_SITE + 9), terms(), END_SITE + 9, END_SITE + 9 + WINDOW),
        # It answered and went away: it has the return window, at least up to the expiry.
        (site(answered=True, dark=10), terms(), DEADLINE, Outcome.SITE_DARK),
        (site(answered=True, dark=990), terms(), DEADLINE, 990 + WINDOW),
        (site(answered=True, dark=990), terms(), 990 + WINDOW, Outcome.SITE_DARK),
        (site(answered=True, dark=5000), terms(), 5001.0, 5000 + WINDOW),
        # It is heard, so it decides for itself, within a bound.
        (site(answered=True), terms(), DEADLINE, END_SITE),
        (site(answered=True), terms(), END_SITE - 0.1, END_SITE),
        (site(answered=True), terms(), END_SITE, Outcome.SITE_DARK),
    ],
)
def test_a_silent_site_is_judged_by_what_it_has_said_and_whether_it_is_heard(
    standing: SiteStanding, job: Terms, now: float, judged: Outcome | float
) -> None:
    found = judge_site(standing, job, now)
    assert (found.outcome if isinstance(found, Verdict) else found) == judged


FAULT = "store_failed: its store cannot be written since 2026-11-27T00:48:01Z: disk I/O error"


@pytest.mark.parametrize(
    ("standing", "job", "outcome", "why"),
    [
        (replace(site(), fault=FAULT), terms(), Outcome.SITE_DARK, f" ({FAULT})"),
        (replace(site(sent=False), fault=FAULT), terms(), Outcome.SITE_DARK, f" ({FAULT})"),
        (replace(site(sent=False), fault=FAULT), LATE, Outcome.EXPIRED, f" ({FAULT})"),
        (site(sent=False), LATE, Outcome.EXPIRED, ": outstation check there says why"),
    ],
)
def test_a_site_that_was_connected_and_took_no_job_is_not_said_to_have_been_away(
    standing: SiteStanding, job: Terms, outcome: Outcome, why: str
) -> None:
    verdict = site_never_answered(standing, job)
    assert verdict == Verdict(outcome, f"the site was connected and did not take the job{why}")


def test_a_site_that_came_after_the_expiry_was_not_connected() -> None:
    late = replace(site(sent=False, here=DEADLINE + 1), fault=FAULT)
    assert "not connected" in site_never_answered(late, terms()).why
    assert "come back" in site_never_answered(late, LATE).why
    assert "not connected" in site_never_answered(replace(site(dark=10.0), fault=FAULT), terms()).why


MOMENTS = st.floats(-1e9, 1e9, allow_nan=False)
ANY_TERMS = st.builds(
    Terms,
    deadline=MOMENTS,
    late=st.sampled_from(["drop", "run"]),
    run_limit=st.floats(0.001, 86_400),
    cancelled=st.booleans(),
    held=st.booleans(),
)
ANY_PRESENCE = st.builds(Presence, present=st.booleans(), unheard=st.booleans(), gone=MOMENTS)
ANY_STANDING = st.builds(
    SiteStanding,
    sent=st.booleans(),
    answered=st.booleans(),
    dark_since=st.none() | MOMENTS,
    unheard=st.booleans(),
    here_since=MOMENTS,
)


@given(st.sampled_from(State), MOMENTS, ANY_TERMS, ANY_PRESENCE, MOMENTS)
def test_a_device_is_judged_now_or_looked_at_later_never_now_again(
    state: State, since: float, job: Terms, presence: Presence, now: float
) -> None:
    judged = judge_device(state, since, job, presence, now)
    assert isinstance(judged, Verdict) or now < judged < math.inf


@given(ANY_STANDING, ANY_TERMS, MOMENTS)
def test_a_site_is_judged_now_or_looked_at_later_never_now_again(
    standing: SiteStanding, job: Terms, now: float
) -> None:
    judged = judge_site(standing, job, now)
    assert isinstance(judged, Verdict) or now < judged < math.inf


@given(st.sampled_from(State), MOMENTS, ANY_TERMS, ANY_PRESENCE)
def test_looking_again_when_told_to_ends_every_device(
    state: State, since: float, job: Terms, presence: Presence
) -> None:
    now = min(since, job.deadline)
    for _ in range(5):
        judged = judge_device(state, since, job, presence, now)
        if isinstance(judged, Verdict):
            assert judged.why
            return
        now = judged
    raise AssertionError(f"{state} is still without an outcome at {now}")


@given(ANY_STANDING, ANY_TERMS)
def test_looking_again_when_told_to_ends_every_site(standing: SiteStanding, job: Terms) -> None:
    now = job.deadline - 1000
    for _ in range(5):
        judged = judge_site(standing, job, now)
        if isinstance(judged, Verdict):
            assert judged.why
            return
        now = judged
    raise AssertionError(f"the site is still without an outcome at {now}")


def test_the_soonest_of_no_times_is_never() -> None:
    assert soonest() == math.inf
    assert soonest(3.0, 2.0) == 2.0
