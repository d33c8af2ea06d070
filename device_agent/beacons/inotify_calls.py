"""inotify(7) of the kernel, through the three calls that the C library has for it. Linux alone has them."""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from typing import Any, Final, NamedTuple

MASKS: Final = {
    "access": 0x1,
    "modify": 0x2,
    "attrib": 0x4,
    "close_write": 0x8,
    "close_nowrite": 0x10,
    "open": 0x20,
    "moved_from": 0x40,
    "moved_to": 0x80,
    "create": 0x100,
    "delete": 0x200,
    "delete_self": 0x400,
    "move_self": 0x800,
    "unmount": 0x2000,
    "q_overflow": 0x4000,
    "ignored": 0x8000,
    "onlydir": 0x1000000,
    "dont_follow": 0x2000000,
    "excl_unlink": 0x4000000,
    "isdir": 0x40000000,
    "oneshot": 0x80000000,
}
"""The words of Salt, and the bits of the kernel."""

IGNORED, OVERFLOW, ISDIR = MASKS["ignored"], MASKS["q_overflow"], MASKS["isdir"]
READ_BYTES: Final = 64 * 1024
_HEAD: Final = struct.Struct("iIII")


class Change(NamedTuple):
    """One event of the kernel. ``name`` is what of a folder it is about; of a file it is empty."""

    watch: int
    mask: int
    name: str
    cookie: int = 0
    """The same in both events of a move; 0 in all others."""

    @property
    def words(self) -> str:
        """Its bits as pyinotify, and so Salt, writes them."""
        return "|".join(f"IN_{name.upper()}" for name, bit in MASKS.items() if self.mask & bit)


@cache
def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
    return library


def begin() -> int:
    """A descriptor that does not wait. Raises ``OSError``."""
    return _checked(_library().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")


def watch(descriptor: int, path: str, mask: int) -> int:
    """The number of the watch on a path. Raises ``OSError``."""
    return _checked(_library().inotify_add_watch(descriptor, os.fsencode(path), mask), path)


def unwatch(descriptor: int, number: int) -> None:
    """Watch it no longer; one that the kernel has let go already is none."""
    _library().inotify_rm_watch(descriptor, number)


def changes(descriptor: int) -> list[Change]:
    """What has happened, as much as one read has of it; nothing when nothing has."""
    try:
        read = os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return []
    found, at = [], 0
    while at < len(read):
        number, mask, cookie, size = _HEAD.unpack_from(read, at)
        at += _HEAD.size
        name = read[at : at + size].rstrip(b"\0").decode(errors="surrogateescape")
        at += size
        found.append(Change(number, mask, name, cookie))
    return found


def _checked(result: int, path: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result
