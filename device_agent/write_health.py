"""Whether a file of the agent can be written: since when it cannot, why, and how many writes failed."""

from __future__ import annotations

from pathlib import Path

from device_agent.clock import Clock, iso
from device_agent.exhausted import exhausted


class WriteHealth:
    """What the writes of one file say of its disk. A write that goes through ends what was wrong."""

    def __init__(self, what: str, path: Path, clock: Clock | None = None) -> None:
        self._what = what
        self._path = path
        self._clock = clock or Clock()
        self._since = 0.0
        self._error: OSError | None = None
        self._failures = 0

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed."""
        return self._error is not None

    def failed(self, error: OSError) -> None:
        """A write failed."""
        if self._error is None:
            self._since, self._failures = self._clock.wall(), 0
        self._error = error
        self._failures += 1

    def wrote(self) -> None:
        """A write is on disk."""
        self._error = None

    def words(self) -> str:
        """What is wrong, in one sentence; empty while nothing is. Times are in UTC."""
        error = self._error
        if error is None:
            return ""
        found = exhausted(error, self._path.parent)
        why = error.strerror or str(error)
        if found is not None and why not in found.what:
            why += f" ({found.what})"
        count = f"{self._failures:,} {'write' if self._failures == 1 else 'writes'} failed"
        return f"{self._what} cannot be written since {iso(self._since)[11:19]}: {why} ({count})"
