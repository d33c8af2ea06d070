"""Errors of the operating system at a start: a wrong setting, or a state that passes by itself.

A unit that ends with the status of a wrong setting stays down until an operator starts it again. An address that DHCP
brings later, a silent name server, a port that another process still holds, and a disk that is mounted late, full or
read-only are no settings: the unit ends with another status, and systemd starts it again.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Final

from device_agent.errors import ConfigInvalid, StartDeferred
from device_agent.late_mount import missing_mount

PASSING: Final = frozenset(
    {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
    | {errno.ENODEV, errno.ENXIO, errno.ENOMEDIUM, errno.ESTALE, errno.EREMOTEIO, errno.ETIMEDOUT, errno.ENOTCONN}
    | {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EBUSY, errno.EINTR}
)
"""Errors of addresses, networks, devices, disks and resources that may be gone at the next start."""


def passes(error: OSError) -> bool:
    """Whether what an error reports may pass without a change of the settings."""
    return isinstance(error, socket.gaierror) or error.errno in PASSING


def start_error(
    error: OSError,
    what: str,
    *paths: Path,
    where: str | None = None,
    found: str | None = None,
    allowed: str | None = None,
    hint: str | None = None,
) -> ConfigInvalid:
    """Return the error that ends a start: ``StartDeferred`` for what may pass, ``ConfigInvalid`` for a setting.

    Args:
        error: As the operating system raised it.
        what: What cannot be done, in words.
        paths: The files or folders that are needed; one on a file system that is not mounted yet may come.
        where: The setting or the file.
        found: What was found there.
        allowed: What would do.
        hint: The next command to type.
    """
    for path in paths:
        if place := missing_mount(path):
            return not_mounted(path, place, where)
    kind = StartDeferred if passes(error) else ConfigInvalid
    return kind(what, where=where, found=found, allowed=allowed, hint=hint)


def not_mounted(path: Path, place: str, where: str | None = None) -> StartDeferred:
    """Return the error for a path whose file system is not mounted yet."""
    return StartDeferred(
        "a file system is not mounted yet",
        error_id="start.not_mounted",
        where=where or str(path),
        found=f"{path} lies on {place}, which /etc/fstab names",
        allowed="a file system that is mounted before the start, or soon after",
        hint=f"findmnt {place}; mount {place}",
    )


def check_mounted(path: Path, where: str) -> None:
    """Raise ``StartDeferred`` if the file system of a path is not mounted yet."""
    if place := missing_mount(path):
        raise not_mounted(path, place, where)
