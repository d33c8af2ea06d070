"""When a device that could not be reached is tried again: after longer and longer waits, and at once when it answers.

Pure: the time and the draw of chance are given.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FIRST_SECONDS: Final = 2.0
CEILING_SECONDS: Final = 60.0
SETTLED_FIRST_SECONDS: Final = 60.0
SETTLED_CEILING_SECONDS: Final = 600.0
"""Waits after a failure that does not mend itself: each try costs the device a login that it may count against us."""

AWAITED_CEILING_SECONDS: Final = 4.0
"""While a device restarts, so that it is found when it is back."""

SETTLED: Final = frozenset(
    {"host_key_changed", "login_refused", "not_ssh", "no_common_algorithm", "login_unusable", "flooding", "no_shell"}
)
"""Reasons that stay until somebody changes something."""


class Breaker(NamedTuple):
    """How a device's last tries ended. ``until`` is the monotonic time before which it is not tried."""

    failures: int = 0
    until: float = 0.0
    reason: str = ""
    detail: str = ""

    @property
    def why(self) -> str:
        """Why it is not reached, in one line; empty when it is."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


CLOSED: Final = Breaker()
"""Nothing is known against it."""


class Succeeded(NamedTuple):
    """A command was finished there."""


class Failed(NamedTuple):
    """It was not reached. ``draw`` is a number between 0 and 1 by chance; ``awaited``: a job restarts it."""

    now: float
    reason: str
    detail: str
    draw: float
    awaited: bool = False


class Changed(NamedTuple):
    """Somebody changed what is known of it: it may be tried at once."""


Event = Succeeded | Failed | Changed


def step(state: Breaker, event: Event) -> Breaker:
    """The state after an event."""
    match event:
        case Succeeded():
            return CLOSED
        case Changed():
            return state._replace(failures=0, until=0.0)
        case Failed(now, reason, detail, draw, awaited):
            # Another reason is another matter: it begins with its own first wait.
            before = state.failures if (reason in SETTLED) is (state.reason in SETTLED) else 0
            return Breaker(before + 1, now + wait(before, reason, draw, awaited=awaited), reason, detail)


def wait(failures: int, reason: str, draw: float, *, awaited: bool = False) -> float:
    """Seconds to the next try after so many failures before this one: half of a doubling time, and half by chance.

    What a device that restarts says at the door, while it stops and starts, is not its last word.
    """
    settled = reason in SETTLED
    first, ceiling = (SETTLED_FIRST_SECONDS, SETTLED_CEILING_SECONDS) if settled else (FIRST_SECONDS, CEILING_SECONDS)
    if awaited:
        first, ceiling = FIRST_SECONDS, CEILING_SECONDS if settled else AWAITED_CEILING_SECONDS
    longest: float = min(ceiling, first * 2.0 ** min(failures, 32))
    return longest * (0.5 + 0.5 * draw)


def may_try(state: Breaker, now: float) -> bool:
    """Whether to try it now."""
    return now >= state.until
