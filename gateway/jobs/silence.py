"""What silence means: for a device or a site that has not answered, whether it now has an outcome. Pure.

Each rule returns either a verdict or the monotonic time at which to look again. Nobody can set these times: they follow
from the job's expiry, its run limit and how long a device may take to come back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from device_agent.protocol import limits
from device_agent.protocol.outcomes import Outcome, State

WINDOW = limits.RETURN_WINDOW_SECONDS
BEHIND_CEILING_SECONDS = 600.0
"""For so long past its end a job waits for answers that the station itself is slow to take."""

NOT_RELEASED = "it was held, and nobody released it before its expiry"


@dataclass(frozen=True)
class Verdict:
    """An outcome that the station decided, and why."""

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Presence:
    """Where a device is: here, expected back, or gone since a monotonic time."""

    present: bool
    unheard: bool
    gone: float
    heard_since: float = -math.inf
    """Since when silence says something, monotonic: the station takes what the device's link brings without delay, and
    the device returns no other job."""


@dataclass(frozen=True)
class Terms:
    """What of a job decides about silence. ``deadline`` is monotonic."""

    deadline: float
    late: str
    run_limit: float
    cancelled: bool
    held: bool = False


def judge_device(
    state: State, since: float, terms: Terms, presence: Presence, now: float, away: float = 0.0
) -> Verdict | float:
    """The verdict on a device without an outcome. ``since`` is when its state began.

    ``away`` is for how long it said that it would not be heard, because the job restarts it.
    """
    match state:
        case State.QUEUED:
            return _judge_queued(terms, presence, now)
        case State.DELIVERED:
            # After a restart a job may be long past its expiry and still run: the device has its time to say so.
            end = _heard_out(max(terms.deadline, since) + WINDOW, presence)
            if now >= end:
                return Verdict(Outcome.UNKNOWN, "it was delivered and never confirmed; the job has expired")
            if presence.present or presence.unheard or terms.late == "run":
                return end
            return _judge_left(presence, now, "before it answered")
        case State.RUNNING:
            end = _heard_out(max(terms.deadline, since) + terms.run_limit + WINDOW, presence)
            if now >= end:
                return Verdict(Outcome.TIMED_OUT, f"it started and did not end within {terms.run_limit:.0f} s")
            if presence.present or presence.unheard or terms.late == "run":
                return end
            return _judge_left(presence, now, "while it ran the job", max(WINDOW, away))


def _heard_out(end: float, presence: Presence) -> float:
    """The end of a wait, put off while the station is behind with what arrives, and by the time to say it again."""
    return min(max(end, presence.heard_since + WINDOW), end + BEHIND_CEILING_SECONDS)


def _judge_queued(terms: Terms, presence: Presence, now: float) -> Verdict | float:
    if terms.cancelled:
        return Verdict(Outcome.CANCELLED, "cancelled before it was sent to the device")
    if terms.held:
        return Verdict(Outcome.EXPIRED, NOT_RELEASED) if now >= terms.deadline else terms.deadline
    if now >= terms.deadline:
        if terms.late == "run":
            return Verdict(Outcome.EXPIRED, "the device did not come back before the expiry")
        return Verdict(Outcome.UNREACHABLE, "the device was not heard before the expiry")
    if presence.present or presence.unheard or terms.late == "run":
        return terms.deadline
    return Verdict(Outcome.UNREACHABLE, "the device did not come back after the station restarted")


def _judge_left(presence: Presence, now: float, when: str, window: float = WINDOW) -> Verdict | float:
    back_by = _heard_out(presence.gone + window, presence)
    if now < back_by:
        return back_by
    return Verdict(Outcome.UNKNOWN, f"the device went away {when} and was not back within {window:.0f} s")


@dataclass(frozen=True)
class SiteStanding:
    """What a station knows of a site below for one job; ``dark_since`` is monotonic, None while connected.

    ``unheard``: it was not here since this station started, which may not know what became of the job meanwhile.
    ``here_since`` is when it came, monotonic. ``fault`` is what it said that kept it from taking jobs meanwhile.
    """

    sent: bool
    answered: bool
    dark_since: float | None
    unheard: bool = False
    here_since: float = -math.inf
    fault: str = ""


def judge_site(standing: SiteStanding, terms: Terms, now: float) -> Verdict | float:
    """The verdict on the devices of a site that has not closed a job: all that have no outcome get the same one."""
    dark, came_late = standing.dark_since is not None, standing.here_since > terms.deadline
    if terms.cancelled and not standing.sent:
        return Verdict(Outcome.CANCELLED, "cancelled before it was sent to the site")
    if now < terms.deadline:
        return terms.deadline
    if terms.held and not standing.sent:
        return Verdict(Outcome.EXPIRED, NOT_RELEASED)
    if not standing.answered:
        # After a start long past the expiry, the site is asked first: it may know how the job ended.
        asked_by = max(terms.deadline, standing.here_since) + WINDOW
        if standing.dark_since is not None:
            asked_by = max(terms.deadline, standing.dark_since + WINDOW) if standing.unheard else terms.deadline
        if now < asked_by and (dark or standing.sent or came_late or terms.late != "run"):
            return asked_by
        return site_never_answered(standing, terms)
    if standing.dark_since is not None:
        back_by = max(terms.deadline, standing.dark_since + WINDOW)
        if now >= back_by:
            return Verdict(Outcome.SITE_DARK, "the site took the job and is not connected since")
        return back_by
    # The site is heard, and decides for itself; this bound only holds if it never closes the job.
    end = max(terms.deadline + terms.run_limit + 3 * WINDOW, standing.here_since + WINDOW)
    return Verdict(Outcome.SITE_DARK, "the site did not close the job") if now >= end else end


def site_never_answered(standing: SiteStanding, terms: Terms) -> Verdict:
    """The verdict on a site of which nothing can be expected any more."""
    if standing.dark_since is None and standing.here_since <= terms.deadline and (standing.fault or not standing.sent):
        ended = Outcome.EXPIRED if terms.late == "run" and not standing.sent else Outcome.SITE_DARK
        return Verdict(ended, f"the site was connected and did not take the job{_because(standing.fault)}")
    if not standing.sent and terms.late == "run":
        return Verdict(Outcome.EXPIRED, "the site did not come back before the expiry")
    if standing.dark_since is not None or not standing.sent:
        return Verdict(Outcome.SITE_DARK, "the site was not connected at the expiry")
    return Verdict(Outcome.SITE_DARK, "the site is connected but did not say who would answer")


def _because(fault: str) -> str:
    return f" ({fault})" if fault else ": outstation check there says why"


def soonest(*times: float) -> float:
    """The earliest of the times to look again; never, when there are none."""
    return min(times, default=math.inf)
