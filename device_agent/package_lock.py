"""Whether Debian's package manager works on this machine, asked without getting in its way.

It uses the standard library alone: it runs while the packages around it are replaced.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LOCKS: Final = (Path("/var/lib/dpkg/lock-frontend"), Path("/var/lib/dpkg/lock"))
"""apt holds the first for as long as it works, dpkg both (dpkg(1))."""

_LOCK: Final = struct.Struct("hhqqi4x")


def is_busy(locks: Iterable[Path] = LOCKS) -> bool:
    """Whether one works. Asked without taking its lock, which would make the next one fail (fcntl(2), F_GETLK)."""
    return any(map(_is_locked, locks))


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_ = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return False
    return bool(kind != fcntl.F_UNLCK)
