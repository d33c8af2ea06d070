"""Names what a machine has run out of: room, inodes, descriptors, memory, or a disk that takes nothing."""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CAUSES: Final = 8
"""Errors that are looked at behind one another."""


@dataclass(frozen=True)
class Exhausted:
    """What ran out, with its limit where it has one, and what to do about it."""

    what: str
    fix: str


def exhausted(error: OSError, folder: Path, unit: str = "") -> Exhausted | None:
    """What an error of the operating system says that there is no more of; None when it is about something else.

    Args:
        error: As it was raised.
        folder: Where it was to be written; it tells a full disk from one without inodes.
        unit: The systemd unit whose limits these are; empty for those of the shell.
    """
    match error.errno:
        case errno.EMFILE:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            return Exhausted(f"all {limit:,} files that this process may open are open", limit_fix(unit, limit))
        case errno.ENFILE:
            return Exhausted("this machine has as many files open as it may", "sysctl fs.file-nr fs.file-max")
        case errno.ENOMEM:
            return Exhausted("no memory is left", "free -m; systemd-cgtop -m -n 1 --order=memory")
        case errno.EAGAIN:
            return Exhausted("no further process or thread may be started", "systemctl show --property=TasksMax")
        case errno.ENOSPC | errno.EDQUOT:
            return _no_room(error, folder)
        case errno.EROFS:
            fix = f"dmesg -T | tail -n 50 says why; findmnt -T {folder}; then mount -o remount,rw on it"
            return Exhausted(f"the file system of {folder} is read-only", fix)
        case errno.EIO:
            fix = f"look at the disk: dmesg -T | tail -n 50; findmnt -T {folder}; smartctl -a on its device"
            return Exhausted(f"the disk of {folder} fails: {os.strerror(errno.EIO)}", fix)
        case _:
            return None


def shortage(unit: str = "") -> Exhausted | None:
    """What this process has run out of when it can open no further file; None when it can open one."""
    root = Path("/")
    try:
        os.close(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return exhausted(error, root, unit)
    return None


def cause_of(error: BaseException, folder: Path, unit: str = "") -> Exhausted | None:
    """What an error, or one that led to it, says that there is no more of; None when it is about something else."""
    seen: BaseException | None = error
    for _ in range(CAUSES):
        if seen is None:
            break
        if isinstance(seen, OSError) and (found := exhausted(seen, folder, unit)) is not None:
            return found
        seen = seen.__cause__ or seen.__context__
    return None


def limit_fix(unit: str, limit: int) -> str:
    """What raises the limit of open files of a unit, or shows that of a shell."""
    if not unit:
        return "ulimit -n"
    return f"systemctl edit {unit}: [Service] LimitNOFILE={max(65_536, 2 * limit)}; systemctl restart {unit}"


def _no_room(error: OSError, folder: Path) -> Exhausted:
    if error.errno == errno.EDQUOT:
        return Exhausted(f"the quota at {folder} is used up", "quota -v")
    try:
        found = os.statvfs(folder)
    except OSError:
        return Exhausted(f"no room is left at {folder}", f"df -h {folder}; df -i {folder}")
    if found.f_files and not found.f_favail:
        what = f"no inode is left of {found.f_files:,} at {folder}"
        return Exhausted(what, f"df -i {folder}; du --inodes -x {folder} | sort -n | tail")
    return Exhausted(f"no room is left at {folder}", f"df -h {folder}; du -xh {folder} | sort -h | tail")
