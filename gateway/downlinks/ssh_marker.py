"""A marker on an SSH device for each job that changes something there: the device itself knows that the job has begun.

The marker is an empty directory in the home of the login user. ``mkdir`` makes it, which is atomic, and the shell that
begins the first command of the job does that, so it costs no extra round trip. The store of the gateway may go back to
an older copy, or run twice; the marker stays on the device, and the job does not run again.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import Final

from device_agent.host import HostLost
from device_agent.own import Custom
from device_agent.protocol import limits
from device_agent.protocol.messages import Job
from device_agent.trust.reach import reach_of

FOLDER: Final = ".outstation/began"
"""In the home of the login user."""

KEPT: Final = 512
"""Markers that a home may have. When there are more, an eighth of them goes, the oldest first."""

LEFT: Final = KEPT - KEPT // 8
KEPT_SECONDS: Final = limits.JOB_EXPIRY_MAX_SECONDS + 2 * 86_400.0
"""An older job has expired, so its marker is of no use."""

AHEAD_SECONDS: Final = 2 * 86_400.0
"""When there are more than ``KEPT``, markers of a later day than this go first: a clock that was ahead made them."""

MADE: Final = b"m"
FOUND: Final = b"x"
NONE: Final = b"n"

HARMLESS: Final = frozenset({"looks", "reads"})
"""Classes of functions that change nothing. They leave no marker, which spares the flash memory of the device."""

_CLAIM: Final = (
    'd=${{HOME%/}}/{folder}; k={key}; y=n; if [ -n "$HOME" ]; then '
    'if mkdir "$d/$k" || {{ ! [ -d "$d/$k" ] && (umask 077; mkdir -p "$d") && mkdir "$d/$k"; }}; then y=m; '
    'elif [ -d "$d/$k" ]; then y=x; fi; fi; '
    'if cd "$d"; then set -- *; p=; if [ $# -gt {kept} ]; then '
    'for i; do a=${{i%"${{i#????????}}"}}; if [ "$a" -gt {latest} ] && [ "$i" != "$k" ]; then p="$p $i"; fi; done; '
    '[ -z "$p" ] || rmdir $p; set -- *; p=; fi; m={kept}; {strict}if [ $# -gt $m ]; then m={left}; fi; '
    'while [ $# -gt 1 ]; do a=${{1%"${{1#????????}}"}}; '
    'if [ $# -gt $m ] || [ "$a" -lt {oldest} ]; then [ "$1" = "$k" ] || p="$p $1"; shift; else break; fi; done; '
    '[ -z "$p" ] || rmdir $p; fi; echo $y'
)
_OLDER_THAN_KEPT: Final = '[ $# -le {left} ] || [ "$1" != "$k" ] || y=x; '
"""A job whose marker would be the oldest of many: one that it had before may have been removed."""

_STRICT: Final = "case $y in [nx]) exit 0;; esac"
_LENIENT: Final = "case $y in x) exit 0;; esac"


class AlreadyBegun(HostLost):
    """The job has begun on the device before, or that cannot be ruled out. It did not run now."""


class Marker:
    """The marker of one job on one device.

    Args:
        jid: The job.
        device: What tells this device from others that may share a home: the names of its site and its own.
        wall: The time, in wall seconds.
        strict: Run the job only if the device holds the marker, because the gateway itself cannot be sure.
    """

    def __init__(self, jid: str, device: str, wall: float, *, strict: bool) -> None:
        self.turn = asyncio.Lock()
        """Only one command of the job tries to make the marker."""
        self.settled = False
        """The device has the marker, or the job runs without one."""
        self.held = False
        self._key = f"{jid}.{hashlib.sha256(device.encode()).hexdigest()[:16]}"
        self._wall = wall
        self._strict = strict

    def script(self) -> str:
        """Shell commands that set ``y`` to a letter: m for made, x for found, n for none."""
        strict = _OLDER_THAN_KEPT.format(left=LEFT) if self._strict else ""
        oldest, latest = _day(self._wall - KEPT_SECONDS), _day(self._wall + AHEAD_SECONDS)
        days = {"oldest": oldest, "latest": latest}
        claim = _CLAIM.format(folder=FOLDER, key=self._key, kept=KEPT, left=LEFT, strict=strict, **days)
        return f"y=$({{ {claim}; }} 2>/dev/null)"

    def guard(self) -> str:
        """Shell commands that end the shell when the job may not run."""
        return _STRICT if self._strict else _LENIENT

    def judge(self, letter: bytes | None) -> None:
        """Take what the device says of the marker. Raises ``AlreadyBegun``."""
        if letter == FOUND:
            raise AlreadyBegun(
                "it did not run now: the device has the marker of this job, so the job began there before, and this"
                f" gateway does not know how it ended; look at the device (~/{FOLDER}/{self._key}), and order the job"
                " again if it is still wanted"
            )
        if letter != MADE and self._strict:
            raise AlreadyBegun(
                "it did not run now: this gateway had the job before it started, no master has been heard since, and"
                f" the device holds no marker (~/{FOLDER}) that would tell whether the job ran; connect a master, or"
                " make the home of the login user writable, and order the job again"
            )
        self.held, self.settled = letter == MADE, True


def _day(wall: float) -> str:
    return datetime.fromtimestamp(max(0.0, wall), UTC).strftime("%Y%m%d")


def needs_marker(job: Job, custom: Custom) -> bool:
    """Whether a job changes anything on the device, as far as its functions are known."""
    return reach_of(job.fun, (job.arg, job.kwarg), custom.reach) not in HARMLESS
