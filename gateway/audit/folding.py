"""Fold refusals, so that a caller who may do nothing cannot fill the audit and the disk under it. Pure: no I/O.

A refusal is written at once while its user has rows left. Equal refusals, and all refusals beyond those rows, are
counted. When the window of the user and the action ends, one row says how many they were.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from device_agent.clock import Clock
from gateway.audit.deed import Deed
from gateway.devices.allowance import Allowance

ROWS_OF_A_USER = 50
ROWS_OF_A_USER_PER_SECOND = 1 / 600
"""Refusals of one user that have a row of their own: 50 at once, and one in ten minutes in the long run."""

ROWS_OF_ALL = 1000
ROWS_OF_ALL_PER_SECOND = 0.1
"""The same for all users together: a local user may own thousands of user ids (subuid(5))."""

WINDOW_SECONDS = 60.0
WINDOW_MAX_SECONDS = 3600.0
"""How long refusals are counted before a row says how many they were; each window is twice as long as the last."""

WINDOWS = 500
"""Pairs of user and action that are counted apart; the refusals of more users are counted together."""

DISTINCT = 20
"""Different refusals of one user and action that are compared with later ones."""

SEVERAL_USERS = "several users"

_Key = tuple[str, str, str]
"""User, door and action. The caller chooses none of them: operations are a fixed table, users are authenticated."""


@dataclass
class _Window:
    ends: float
    seconds: float
    repeats: dict[Deed, int] = field(default_factory=dict)
    """How often each refusal that has a row came again."""
    more: int = 0
    """Refusals without a row of their own."""
    first: Deed | None = None
    """The first of them."""


class RefusalFolding:
    """Decides which refusals become a row now, and counts the others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[_Key, _Window] = {}
        self._users: dict[tuple[str, str], Allowance] = {}
        self._all = Allowance(per_second=ROWS_OF_ALL_PER_SECOND, burst=ROWS_OF_ALL, clock=clock)

    def take(self, deed: Deed) -> bool:
        """Whether this refusal becomes a row now. If not, it is counted."""
        window = self._window((deed.user, deed.door, deed.action))
        if window is None:
            deed = replace(deed, user=SEVERAL_USERS, action="refused", subject="", jid="", fun="", arguments="")
            window = self._window((SEVERAL_USERS, deed.door, deed.action), always=True)
            assert window is not None
        elif deed in window.repeats:
            window.repeats[deed] += 1
            return False
        elif len(window.repeats) < DISTINCT and self._allowance(deed).take() and self._all.take():
            window.repeats[deed] = 0
            return True
        window.more += 1
        window.first = window.first or deed
        return False

    def due(self, *, all_of_them: bool = False) -> list[Deed]:
        """The rows that say how many refusals were counted, of the windows that have ended."""
        now = self._clock.monotonic()
        rows: list[Deed] = []
        for key, window in list(self._windows.items()):
            if window.ends > now and not all_of_them:
                continue
            counted = [replace(deed, times=times) for deed, times in window.repeats.items() if times]
            if window.first is not None:
                why = f"{window.first.why}; the first of {window.more} refusals that are not shown one by one"
                counted.append(replace(window.first, times=window.more, why=why))
            rows += counted
            del self._windows[key]
            if counted:
                seconds = min(2 * window.seconds, WINDOW_MAX_SECONDS)
                repeats = {deed: 0 for deed, times in window.repeats.items() if times}
                self._windows[key] = _Window(now + seconds, seconds, repeats)
        return rows

    def _window(self, key: _Key, *, always: bool = False) -> _Window | None:
        window = self._windows.get(key)
        if window is None and (always or len(self._windows) < WINDOWS):
            window = self._windows[key] = _Window(self._clock.monotonic() + WINDOW_SECONDS, WINDOW_SECONDS)
        return window

    def _allowance(self, deed: Deed) -> Allowance:
        """What is left to the user; the user refused longest ago gives way."""
        user = (deed.user, deed.door)
        known = self._users.pop(user, None)
        self._users[user] = known or Allowance(
            per_second=ROWS_OF_A_USER_PER_SECOND, burst=ROWS_OF_A_USER, clock=self._clock
        )
        if len(self._users) > WINDOWS:
            del self._users[next(iter(self._users))]
        return self._users[user]
