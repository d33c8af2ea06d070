"""Whether the store can be written: since when it cannot, why, and how many commits failed meanwhile."""

from __future__ import annotations

import errno
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from device_agent.clock import Clock, iso
from device_agent.exhausted import Exhausted, exhausted
from gateway.store.damage import is_full

SETTLED_SECONDS: Final = 3.0
"""So long no commit may fail before the store counts as mended: a disk that comes and goes is a failing disk."""

HANGING_SECONDS: Final = 10.0
"""A commit that the disk holds up for longer is told of."""

_PRIMARY: Final = frozenset({3, 5, 6, 7, 8, 10, 13, 14, 15, 22})
"""PERM, BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL and NOLFS: the statements could be right
(https://www.sqlite.org/rescode.html)."""

_BUSY: Final = frozenset({5, 6})
_NO_MEMORY: Final = 7
_READ_ONLY: Final = 8
_IO: Final = 10
_CANNOT_OPEN: Final = 14


@dataclass(frozen=True, slots=True)
class Failing:
    """A store that cannot be written.

    Args:
        since: Wall seconds.
        error: Why, in words; empty for a disk that does not answer.
        failures: Commits that failed since then.
        passed: Commits that went through meanwhile.
        fix: What to do.
    """

    since: float
    error: str
    failures: int
    passed: int
    fix: str

    @property
    def words(self) -> str:
        """In one sentence, as a finding says it."""
        at = time_of_day(self.since)
        if not self.error:
            return f"the disk has not answered a commit since {at}"
        much = "nothing" if not self.passed else "not everything"
        failed = f"{self.failures:,} {'commit' if self.failures == 1 else 'commits'} failed"
        passed = f", {self.passed:,} went through" if self.passed else ""
        return f"{much} can be written since {at}: {self.error} ({failed}{passed})"


class Health:
    """What the commits of a store say of its disk."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._since = 0.0
        self._error: BaseException | None = None
        self._failures = 0
        self._passed = 0
        self._last_failure = 0.0
        self._handed = 0.0
        self._handed_at = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether commits fail."""
        return self._error is not None

    @property
    def last_tried(self) -> float:
        """When a commit was handed to the disk last, in monotonic seconds; 0 when none was."""
        return self._handed

    def handed(self) -> None:
        """The disk gets a commit."""
        self._handed = self._clock.monotonic()
        self._handed_at = self._clock.wall()

    def wrote(self, commits: int, errors: list[BaseException]) -> None:
        """What became of it: so many commits went through, and these failed."""
        wrong = [error for error in errors if is_of_the_disk(error)]
        now = self._clock.monotonic()
        if wrong:
            if self._error is None:
                self._since, self._failures, self._passed = self._handed_at, 0, 0
            self._error = wrong[-1]
            self._failures += len(wrong)
            self._last_failure = now
        if self._error is not None and commits:
            self._passed += commits
            if now - self._last_failure >= SETTLED_SECONDS:
                self._error = None

    def failing(self, *, waits: bool = False) -> Failing | None:
        """What is wrong with it; None while nothing is. ``waits``: a commit is with the disk now."""
        if self._error is not None:
            found = named(self._error, self._path)
            return Failing(self._since, found.what, self._failures, self._passed, found.fix)
        if waits and self._clock.monotonic() - self._handed > HANGING_SECONDS:
            return Failing(self._handed_at, "", 0, 0, _fix_disk(self._path))
        return None


def time_of_day(wall_seconds: float) -> str:
    """A time of today as people read it, in UTC."""
    return iso(wall_seconds)[11:19]


def is_of_the_disk(error: BaseException) -> bool:
    """Whether a commit failed for its store and its disk, and not for what was to be written."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and code is not None and code & 0xFF in _PRIMARY


def named(error: BaseException, path: Path) -> Exhausted:
    """Why a commit failed, and what to do: with the limit that was reached, where SQLite's words do not name it."""
    words = str(error)
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    folder = path.parent
    if is_full(error):
        found = exhausted(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), folder)
    elif code == _NO_MEMORY:
        found = exhausted(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), folder)
    elif code == _CANNOT_OPEN:
        found = _not_opened(folder)
    elif code == _READ_ONLY:
        found = exhausted(OSError(errno.EROFS, os.strerror(errno.EROFS)), folder)
    elif code in _BUSY:
        return Exhausted(words, f"another program holds the store: fuser -v {path}")
    elif code == _IO:
        found = _read_only(folder)
    else:
        found = None
    return Exhausted(f"{words} ({found.what})", found.fix) if found is not None else Exhausted(words, _fix_disk(path))


def _read_only(folder: Path) -> Exhausted | None:
    """A file system that went read-only after an error of its disk is an I/O error to SQLite."""
    try:
        flags = os.statvfs(folder).f_flag
    except OSError as error:
        return exhausted(error, folder)
    return exhausted(OSError(errno.EROFS, os.strerror(errno.EROFS)), folder) if flags & os.ST_RDONLY else None


def _not_opened(folder: Path) -> Exhausted | None:
    """SQLite does not say why it could not open a file: whether it was for want of descriptors is tried again."""
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return exhausted(error, folder)
    return None


def _fix_disk(path: Path) -> str:
    return f"look at the disk: dmesg -T | tail -n 50; findmnt -T {path.parent}; smartctl -a on its device; replace it"
