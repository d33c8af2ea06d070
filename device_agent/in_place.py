"""Writing into a file that nothing can be renamed over, because it is a mount point of its own (rename(2), EBUSY).

Containers and read-only systems mount single files: /etc/hosts, /etc/hostname, /etc/resolv.conf.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
"""As proc(5) writes blanks and backslashes."""

PIECE_BYTES: Final = 1_048_576

_locks: WeakValueDictionary[tuple[int, int], threading.Lock] = WeakValueDictionary()
"""One for each file that is being written in place."""

_finding_a_lock = threading.Lock()
"""``setdefault`` of a dictionary with weak values is not atomic between threads."""

Piece = Callable[[int, int], bytes]
"""Bytes of the new content: at an offset, so many."""


def must_be_written_in_place(target: bytes, error: OSError) -> bool:
    """Whether a regular file could not be replaced because it is a mount point: busy, or beside it is another disk."""
    return error.errno == errno.EBUSY or _is_mount_point(target)


def overwrite(target: bytes, size: int, piece: Piece, mode: int | None, owner: tuple[int, int] | None) -> None:
    """Make ``size`` bytes the content of a file that is there, and have them on disk. Raises ``OSError``.

    What makes the file longer is written first: a full disk is found while the old content is still whole. A crash
    later on leaves a part of each.
    """
    handle = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        place = os.fstat(handle)
        # One at a time, or the file is a mixture of both. Another file, maybe of a disk that hangs, holds up nothing.
        with _lock_of(place.st_dev, place.st_ino):
            _overwrite(handle, size, piece, mode, owner)
    finally:
        os.close(handle)


def _lock_of(device: int, inode: int) -> threading.Lock:
    with _finding_a_lock:
        return _locks.setdefault((device, inode), threading.Lock())


def _overwrite(handle: int, size: int, piece: Piece, mode: int | None, owner: tuple[int, int] | None) -> None:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if owner is not None and owner != (found.st_uid, found.st_gid):
        os.fchown(handle, *owner)
    if mode is not None and stat.S_IMODE(found.st_mode) & ~mode:
        os.fchmod(handle, stat.S_IMODE(found.st_mode) & mode)  # Nobody reads the new content who may not.
    try:
        _pour(handle, found.st_size, size, piece)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, found.st_size)
        raise
    _pour(handle, 0, min(size, found.st_size), piece)
    os.ftruncate(handle, size)
    if mode is not None and mode != stat.S_IMODE(os.fstat(handle).st_mode):
        os.fchmod(handle, mode)
    os.fsync(handle)


def _is_mount_point(target: bytes) -> bool:
    folder, _, name = target.rpartition(b"/")
    path = b"/".join([os.path.realpath(folder or (b"/" if target[:1] == b"/" else b".")).rstrip(b"/"), name])
    with Path("/proc/self/mountinfo").open("rb") as mounts:
        places = (line.split(b" ")[4] for line in mounts)
        return any(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), place) == path for place in places)


def _pour(handle: int, start: int, end: int, piece: Piece) -> None:
    while start < end:
        data = piece(start, min(end - start, PIECE_BYTES))
        if not data:
            raise OSError(errno.EIO, "the new content became shorter")
        start += os.pwrite(handle, data, start)
