"""What survives a power cut: a private file written whole in the place of another, and the names in a folder."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file to read it; ``follow`` says whether a symbolic link may lead to it.

    Opening a FIFO to read blocks until a program writes to it (fifo(7)). In the place of a file of the state folder it
    would hang the start. Raises ``OSError``.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        refuse_irregular(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, *, follow: bool = True) -> bytes:
    """The bytes of a regular file, as ``open_regular`` opens it. Raises ``OSError``."""
    with open_regular(path, follow=follow) as file:
        return file.read()


def refuse_irregular(descriptor: int, path: Path) -> None:
    """Raise ``OSError`` if an open file is a FIFO, a socket, a folder or a device."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def replace_private(path: Path, body: bytes, owner: tuple[int, int] | None = None, *, wipe: bool = False) -> None:
    """Put a file of mode 0600 in a path's place; it is on disk when this returns. Raises ``OSError``.

    It is written beside and renamed: a crash in between leaves the old one or the new one, and no half of either.
    With ``wipe`` what the old one held is then overwritten, as far as the file system writes in place.
    """
    if wipe and path.exists():
        with path.open("r+b", buffering=0) as old:
            replace_private(path, body, owner)
            old.write(bytes(os.fstat(old.fileno()).st_size))
            os.fsync(old.fileno())
        return
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if owner is not None:
            os.fchown(descriptor, *owner)
        file.write(body)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    synced(path.parent)


def synced(path: Path | bytes) -> None:
    """Have a file, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
