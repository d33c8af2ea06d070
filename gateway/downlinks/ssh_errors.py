"""What the programs of a device say when they are refused, as the error numbers behind it.

A shell tells no error number, only the C library's words for it at the end of a line. There are glibc's, musl's, and
what dash and BusyBox make of some of them.
"""

from __future__ import annotations

import errno
import os
from typing import Final

WORDS: Final = (
    (b"no such file or directory", errno.ENOENT),
    (b"no such file", errno.ENOENT),
    (b"directory nonexistent", errno.ENOENT),
    (b"nonexistent directory", errno.ENOENT),
    (b"permission denied", errno.EACCES),
    (b"operation not supported", errno.ENOTSUP),
    (b"operation not permitted", errno.EPERM),
    (b"is a directory", errno.EISDIR),
    (b"not a directory", errno.ENOTDIR),
    (b"directory not empty", errno.ENOTEMPTY),
    (b"no space left on device", errno.ENOSPC),
    (b"disk quota exceeded", errno.EDQUOT),
    (b"quota exceeded", errno.EDQUOT),
    (b"read-only file system", errno.EROFS),
    (b"device or resource busy", errno.EBUSY),
    (b"resource busy", errno.EBUSY),
    (b"too many levels of symbolic links", errno.ELOOP),
    (b"symbolic link loop", errno.ELOOP),
    (b"file name too long", errno.ENAMETOOLONG),
    (b"filename too long", errno.ENAMETOOLONG),
    (b"argument list too long", errno.E2BIG),
    (b"file exists", errno.EEXIST),
    (b"file too large", errno.EFBIG),
    (b"invalid argument", errno.EINVAL),
    (b"no such device or address", errno.ENXIO),
    (b"no such device", errno.ENODEV),
    (b"text file busy", errno.ETXTBSY),
    (b"too many open files", errno.EMFILE),
    (b"cannot allocate memory", errno.ENOMEM),
    (b"out of memory", errno.ENOMEM),
    (b"resource temporarily unavailable", errno.EAGAIN),
    (b"connection reset by peer", errno.ECONNRESET),
    (b"connection refused", errno.ECONNREFUSED),
    (b"network is unreachable", errno.ENETUNREACH),
    (b"network unreachable", errno.ENETUNREACH),
    (b"no route to host", errno.EHOSTUNREACH),
    (b"host is unreachable", errno.EHOSTUNREACH),
    (b"connection timed out", errno.ETIMEDOUT),
    (b"operation timed out", errno.ETIMEDOUT),
    (b"input/output error", errno.EIO),
    (b"i/o error", errno.EIO),
    (b"not found", errno.ENOSYS),  # What the shell says of a program that the device lacks.
)


def errno_of(said: bytes) -> int | None:
    """The error number that these words end with."""
    end = said.strip().lower()
    return next((number for words, number in WORDS if end.endswith(words)), None)


def refusal(said: bytes, path: str) -> OSError:
    """The error behind what was said about a path."""
    number = errno_of(said)
    if number is None:
        text = said.strip().decode(errors="replace")[-500:]
        return OSError(errno.EIO, text or "the device gave no reason", path)
    if number in {errno.ENOSYS, errno.ENOTSUP}:
        return OSError(number, said.strip().decode(errors="replace")[-500:], path)
    return OSError(number, os.strerror(number), path)
