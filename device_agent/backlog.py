"""Whether a reader of messages keeps up with them, and since when.

Silence proves nothing while the messages that would break it wait in the reader's own queue.
"""

from __future__ import annotations

from typing import Final

from device_agent.clock import Clock

BEHIND_SECONDS: Final = 2.0
"""A reader that has had messages before it for so long without a break is behind."""


class Backlog:
    """How a reader stands to its queue. Times are monotonic seconds of its clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy_since: float | None = None
        self._clear_since = clock.monotonic()

    def taken(self) -> None:
        """A message was taken from the queue."""
        if self._busy_since is None:
            self._busy_since = self._clock.monotonic()

    def emptied(self) -> None:
        """Nothing waits in the queue any more."""
        if self.behind:
            self._clear_since = self._clock.monotonic()
        self._busy_since = None

    @property
    def behind(self) -> bool:
        """Whether messages wait for longer than ``BEHIND_SECONDS``."""
        return self._busy_since is not None and self._clock.monotonic() - self._busy_since > BEHIND_SECONDS

    def clear_since(self) -> float:
        """Since when the reader has kept up without a break: now while it is behind."""
        return self._clock.monotonic() if self.behind else self._clear_since
