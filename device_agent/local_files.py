"""The files of this machine, for ``LocalHost``. Everything here may wait for a disk, so it is called in a thread."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import secrets
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct

from device_agent.durable import synced
from device_agent.file_attributes import Attributes, attributes_of, give_extended, give_flags
from device_agent.host import NEW_FILE_MODE, Kind, Stat
from device_agent.in_place import must_be_written_in_place, overwrite

KINDS: Final[dict[int, Kind]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFBLK: "block",
    stat.S_IFCHR: "character",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}
BESIDE: Final = ".outstation-"
"""``.NAME.outstation-XXXXXXXX`` is what is being written; NAME is cut so that the whole is a legal name."""

BESIDE_NAME_BYTES: Final = 200
LINKS_FOLLOWED: Final = 40
"""As many as the kernel follows, path_resolution(7)."""


class Belongings(Struct, frozen=True):
    """What a file has beside its content."""

    mode: int | None
    owner: tuple[int, int] | None
    attributes: Attributes | None


_under_way: set[bytes] = set()
"""The names beside files that are being written now. A lock would let a write that hangs hold up every other disk."""


def read(path: str, offset: int, limit: int, *, follow: bool = True) -> bytes:
    """See ``Host.read``. Without ``follow`` a link is refused (``ELOOP``)."""
    links = 0 if follow else os.O_NOFOLLOW
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | links)
    try:
        found = os.fstat(handle).st_mode
        if stat.S_ISDIR(found):
            raise _error(errno.EISDIR, path)
        if stat.S_ISFIFO(found):
            raise _error(errno.ENXIO, path)
        if offset:
            os.lseek(handle, offset, os.SEEK_SET)
        kept = bytearray()
        while len(kept) < limit:
            data = os.read(handle, min(limit - len(kept), 1_048_576))
            if not data:
                break
            kept += data
        return bytes(kept)
    except OSError as error:
        raise _named(error, path) from None
    finally:
        os.close(handle)


def write(path: str, data: bytes, mode: int | None, owner: tuple[int, int] | None, *, follow: bool = True) -> None:
    """See ``Host.write``. Without ``follow`` a link is no place to write to (``EINVAL``)."""
    try:
        target = os.fsencode(_followed(path) if follow else path)
        found = _there(target)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise _error(errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL, path)
        folder, name = os.path.split(target)
        prefix = b"." + name[:BESIDE_NAME_BYTES] + BESIDE.encode()
        _sweep(folder or b".", prefix)
        own = prefix + secrets.token_hex(4).encode()
        beside = os.path.join(folder, own)
        _under_way.add(own)
        try:
            belongings = _belongings(target, found, mode, owner)
            try:
                _fill(beside, data, belongings)
                os.replace(beside, target)
            except OSError as error:
                if found is None or not must_be_written_in_place(target, error):
                    raise
                overwrite(target, len(data), lambda at, most: data[at : at + most], belongings.mode, belongings.owner)
            else:
                synced(folder or b".")
        finally:
            with suppress(OSError):
                os.unlink(beside)
            _under_way.discard(own)
    except OSError as error:
        raise _named(error, path) from None


def append(path: str, data: bytes, at: int) -> None:
    """See ``Host.append``."""
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        if at == 0:
            with suppress(FileNotFoundError):
                os.unlink(path)
            flags |= os.O_CREAT | os.O_EXCL
        handle = os.open(path, flags, 0o600)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_size < at:
                raise _error(errno.EINVAL, path)
            os.ftruncate(handle, at)
            os.lseek(handle, at, os.SEEK_SET)
            _pour(handle, data)
        finally:
            os.close(handle)
    except OSError as error:
        raise _error(errno.EINVAL, path) if error.errno == errno.ELOOP else _named(error, path) from None


def replace(path: str, target: str) -> None:
    """See ``Host.replace``."""
    try:
        raw, folder = os.fsencode(target), os.path.dirname(os.fsencode(target))
        found = _there(raw)
        if found is not None and stat.S_ISLNK(found.st_mode):
            found = None
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise _error(errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL, target)
        belongings = _belongings(raw, found, None if found else NEW_FILE_MODE & ~_umask(), None)
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _error(errno.EINVAL, path)
            try:
                if belongings.attributes is not None:
                    give_flags(handle, belongings.attributes)
                _settle(handle, belongings)
                os.replace(path, raw)
            except OSError as error:
                if found is None or not must_be_written_in_place(raw, error):
                    raise
                size = os.fstat(handle).st_size
                overwrite(raw, size, lambda at, most: os.pread(handle, most, at), belongings.mode, belongings.owner)
                os.unlink(path)
        finally:
            os.close(handle)
        synced(folder or b".")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _error(errno.EINVAL, path) from None
        raise _named(error, target if error.filename == target else path) from None


def look(path: str, *, follow: bool) -> Stat | None:
    """See ``Host.stat``."""
    try:
        found = os.stat(path, follow_symlinks=follow)
        target = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Stat(
        kind=KINDS[stat.S_IFMT(found.st_mode)],
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        user=_name(lambda: pwd.getpwuid(found.st_uid).pw_name, found.st_uid),
        group=_name(lambda: grp.getgrgid(found.st_gid).gr_name, found.st_gid),
        size=found.st_size,
        atime=found.st_atime,
        mtime=found.st_mtime,
        ctime=found.st_ctime,
        inode=found.st_ino,
        target=target,
    )


def names(path: str, *, follow: bool = True) -> list[str]:
    """See ``Host.list``. Without ``follow`` a link is no folder (``ENOTDIR``)."""
    if follow:
        return sorted(os.listdir(path))
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return sorted(os.listdir(handle))
    finally:
        os.close(handle)


def remove(path: str, *, recursive: bool) -> None:
    """See ``Host.remove``."""
    if not stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode):
        os.unlink(path)
    elif recursive and os.path.samefile(path, "/"):
        raise _error(errno.EBUSY, path)
    elif recursive:
        shutil.rmtree(path)
    else:
        os.rmdir(path)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _named(error: OSError, path: str) -> OSError:
    """The same error about the path the caller knows."""
    return OSError(error.errno, error.strerror, path)


def _followed(path: str) -> str:
    """Where a write to this path goes: to what a link points, whether or not that is there."""
    for _ in range(LINKS_FOLLOWED):
        try:
            target = os.readlink(path)
        except FileNotFoundError:
            return path
        except OSError as error:
            if error.errno == errno.EINVAL:  # It is no link.
                return path
            raise
        path = os.path.join(os.path.dirname(path), target)
    raise _error(errno.ELOOP, path)


def _there(target: bytes) -> os.stat_result | None:
    try:
        return os.stat(target, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _sweep(folder: bytes, prefix: bytes) -> None:
    """Remove what writes left that did not live to their end."""
    left = re.compile(re.escape(prefix) + rb"[0-9a-f]{8}")
    for name in os.listdir(folder):
        if left.fullmatch(name) and name not in _under_way:
            # It may have taken its place since it was listed.
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))


def _belongings(
    target: bytes, found: os.stat_result | None, mode: int | None, owner: tuple[int, int] | None
) -> Belongings:
    """What a file gets that takes the place of the one found."""
    if found is None:
        return Belongings(mode, owner, None)
    uid, gid = owner or (-1, -1)
    kept = (found.st_uid if uid == -1 else uid, found.st_gid if gid == -1 else gid)
    return Belongings(stat.S_IMODE(found.st_mode) if mode is None else mode, kept, attributes_of(target))


def _fill(beside: bytes, data: bytes, belongings: Belongings) -> None:
    # Nobody else reads it before its mode is what it shall be.
    first = _first(belongings.mode)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, first)
    try:
        if belongings.attributes is not None:
            give_flags(handle, belongings.attributes)
        _pour(handle, data)
        _settle(handle, belongings)
    finally:
        os.close(handle)


def _pour(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _settle(handle: int, belongings: Belongings) -> None:
    """Give it its owner, attributes and mode, and have it on disk."""
    made = os.fstat(handle)
    if belongings.owner is not None and belongings.owner != (made.st_uid, made.st_gid):
        os.fchown(handle, *belongings.owner)
    if belongings.attributes is not None and belongings.mode is not None:
        give_extended(handle, belongings.attributes, belongings.mode)
    if belongings.mode is not None:
        os.fchmod(handle, belongings.mode)
    os.fsync(handle)


def _umask() -> int:
    """What a new file is not allowed; to ask for it is to set it, so it is read where the kernel tells it."""
    with open("/proc/self/status", "rb") as status:
        return next((int(line.split()[1], 8) for line in status if line.startswith(b"Umask:")), 0o022)


def _first(mode: int | None) -> int:
    return NEW_FILE_MODE if mode is None else 0o600


def _name(ask: Callable[[], str], number: int) -> str:
    try:
        return ask()
    except KeyError:
        return str(number)
