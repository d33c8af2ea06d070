"""What ``outstation check --fix`` may do by itself: give the station back its own files, and clear away a dead socket.

Only what is certain not to do harm: modes become narrower and never wider, owners become who runs the station, nothing
is removed but a socket at which nobody answers. No link is followed, so that a file that somebody has put into the
station's folder cannot be used to change another's.
"""

from __future__ import annotations

import os
import pwd
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.checks.box import Box
from gateway.checks.permissions import FOLDER_MODE, Fault, faults_of

PROBE_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Repair:
    """One thing that can be done: in words, as a shell would do it, and the deed. It raises ``OSError``."""

    words: str
    do: Callable[[], None]


def repairs(box: Box) -> list[Repair]:
    """What can be mended here now."""
    found = [_of_fault(fault) for fault in faults_of(box)]
    if _nobody_answers(box):
        found.append(Repair(f"rm {box.socket}", lambda: _remove_socket(box)))
    return found


def _of_fault(fault: Fault) -> Repair:
    return Repair(fault.command, lambda: _mend(fault))


def _mend(fault: Fault) -> None:
    if fault.kind == "missing":
        fault.path.mkdir(mode=FOLDER_MODE, parents=True)
    # What is open is changed, whatever stands at the path a moment later: the folder, and in it the file.
    folder = os.open(fault.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(fault.path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            raise OSError(0, "it has a second name elsewhere, and is left alone")
        if fault.kind in ("missing", "owner"):
            if found.st_uid != fault.owner:
                os.fchown(handle, fault.owner, _group_of(fault.owner))
        elif fault.kind == "foreign":
            # The group stays: by it the station may read them.
            os.fchown(handle, fault.owner, -1)
        else:
            os.fchmod(handle, stat.S_IMODE(found.st_mode) & fault.mode)
    finally:
        os.close(handle)


def _group_of(user: int) -> int:
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return -1


def _nobody_answers(box: Box) -> bool:
    """Whether a socket is left over from a station that was killed."""
    if box.running or not box.socket.is_socket():
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(box.socket))
        except ConnectionRefusedError:
            return True
        except OSError:
            # It is busy, or not ours to ask: then it is not ours to remove.
            return False
    return False


def _remove_socket(box: Box) -> None:
    if _nobody_answers(box):
        box.socket.unlink(missing_ok=True)
