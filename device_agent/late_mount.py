"""Whether a path lies on a file system that /etc/fstab names and that is not mounted yet.

Without this check a program that starts before the mount would find an empty folder, and would make new keys in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Final

from device_agent import fstab, system_text

FSTAB: Final = Path("/etc/fstab")
MOUNTINFO: Final = Path("/proc/self/mountinfo")


def missing_mount(path: Path) -> str:
    """Return the mount point above ``path`` that is not mounted yet; empty if there is none."""
    try:
        table, now = FSTAB.read_bytes(), MOUNTINFO.read_bytes()
    except OSError:
        return ""
    wanted = [
        mount
        for line in system_text.lines(table.decode(errors="surrogateescape"))
        if (mount := fstab.parse(line)) is not None
    ]
    # With noauto the mount is a decision of the operator, so a start does not wait for it.
    places = [mount.name for mount in wanted if "noauto" not in mount.opts.split(",")]
    return unmounted(os.path.realpath(path), places, fstab.more(now.decode(errors="surrogateescape")))


def unmounted(path: str, wanted: Iterable[str], mounted: Iterable[str]) -> str:
    """Return the deepest of the ``wanted`` mount points above ``path`` if no ``mounted`` one lies as deep."""
    place = _deepest(path, wanted)
    return place if len(place) > len(_deepest(path, mounted)) else ""


def _deepest(path: str, places: Iterable[str]) -> str:
    above = [each.rstrip("/") or "/" for each in places if each.startswith("/") and PurePath(path).is_relative_to(each)]
    return max(above, key=len, default="")
