"""What is known of the last upgrade: one small JSON file that root writes and everybody may read."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from device_agent.durable import open_regular

FOLDER: Final = Path("/var/cache/outstation")
"""Root's: what lies here is installed as root. Whoever empties it gives up the way back, and nothing else."""

FILE_NAME: Final = "upgrade.json"
LOCK: Final = "upgrade.lock"
PREVIOUS: Final = "previous.deb"
UNDER_WAY: Final = ("keeping", "watching", "rolling_back")
"""The package is being replaced, or what replaced it is not judged yet."""

STATES: Final = (*UNDER_WAY, "healthy", "rolled_back", "failed", "withdrawn")
MOST_BYTES: Final = 64 * 1024
REJECTED_KEPT: Final = 16


@dataclass(frozen=True, slots=True)
class Record:
    """One replacement of the package.

    ``before`` and ``after`` are package versions. ``at`` is the time of the last change, wall seconds. ``units`` ran
    before it, and ``errors`` are the checks that found an error then: neither counts against the new version.
    ``rejected`` are versions that were taken back, newest last. ``id`` names this one replacement.
    """

    id: str
    state: str
    before: str
    after: str
    at: float
    reason: str = ""
    units: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    attempts: int = 0
    rollbacks: int = 0
    rejected: tuple[str, ...] = field(default=())

    def now(self, state: str, at: float, reason: str = "") -> Record:
        """The same replacement in another state."""
        return replace(self, state=state, at=at, reason=reason[:500])

    def rolled_back(self, at: float, reason: str, *, blamed: bool) -> Record:
        """The package before it is back. ``blamed`` is whether the version that went is to be turned away."""
        if not blamed:
            return replace(self.now("rolled_back", at, reason), rollbacks=self.rollbacks + 1)
        rejected = (*(each for each in self.rejected if each != self.after), self.after)
        return replace(
            self.now("rolled_back", at, reason), rollbacks=self.rollbacks + 1, rejected=rejected[-REJECTED_KEPT:]
        )


def read(folder: Path) -> Record | None:
    """The last upgrade; None when there was none, or when the file cannot be read as one."""
    try:
        with open_regular(folder / FILE_NAME) as file:
            fields = json.loads(file.read(MOST_BYTES))
        record = Record(
            id=str(fields["id"]),
            state=str(fields["state"]),
            before=str(fields["before"]),
            after=str(fields["after"]),
            at=float(fields["at"]),
            reason=str(fields["reason"]),
            units=tuple(map(str, fields["units"])),
            errors=tuple(map(str, fields["errors"])),
            attempts=int(fields["attempts"]),
            rollbacks=int(fields["rollbacks"]),
            rejected=tuple(map(str, fields["rejected"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if record.state in STATES else None


def write(folder: Path, record: Record) -> None:
    """Keep it, on disk when this returns. Raises ``OSError``."""
    with _alone(folder):
        _write(folder, record)


def write_if_same(folder: Path, record: Record) -> bool:
    """The same, unless another replacement has its record there by now; whether it was kept. Raises ``OSError``."""
    with _alone(folder):
        last = read(folder)
        if last is not None and last.id != record.id:
            return False
        _write(folder, record)
        return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process writes meanwhile. Nobody holds this for longer than a write takes."""
    # A file that root alone can open: nobody else can hold up an upgrade with it.
    held = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _write(folder: Path, record: Record) -> None:
    fresh = folder / f"{FILE_NAME}.new"
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(asdict(record), file, indent=1)
        file.write("\n")
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    fresh.replace(folder / FILE_NAME)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
