"""Since when each Salt master of the list is not there: how long what is for it waits, before another one gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from device_agent.clock import Clock

AWAY_SECONDS: Final = 60.0
"""A master that is away for so long does not get its answers first: the active one does, with the jobs they are of."""


class Away:
    """Of a master that was not there yet it counts from the start, or from when it was listed."""

    def __init__(self, clock: Clock, masters: Callable[[], Sequence[str]]) -> None:
        self._clock = clock
        self._masters = masters
        self._since: dict[str, float] = {}
        self._began = clock.monotonic()
        self._listed: set[str] = set()

    def begin(self) -> None:
        """Count from now."""
        self._began = self._clock.monotonic()
        self._listed = set(self._masters())

    def here(self, master: str) -> None:
        """This one has come."""
        self._since.pop(master, None)

    def gone(self, master: str) -> None:
        """This one has left."""
        self._since[master] = self._clock.monotonic()

    def listed(self, here: Iterable[str]) -> None:
        """The list is another one: who is new in it, and not here yet, is waited for from now."""
        listed = set(self._masters())
        for master in listed - self._listed - set(here):
            self.gone(master)
        self._listed = listed

    def over(self, master: str) -> bool:
        """Whether it has been away for so long that nothing waits for it any more."""
        return self.until(master) <= 0.0

    def until(self, master: str) -> float:
        """Seconds until that is so."""
        return self._since.get(master, self._began) + AWAY_SECONDS - self._clock.monotonic()
