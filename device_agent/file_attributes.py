"""What belongs to a file beside its content, mode and owner: access control lists, labels, other extended attributes,
and inode flags. A file that takes the place of another gets all of it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import Final

from msgspec import Struct

OF_CONTENT: Final = frozenset({"security.capability", "security.ima", "security.evm"})
"""The kernel takes these away from a file, or computes them anew, when its content changes; capabilities(7)."""

FLAGS: Final = 0x4 | 0x8 | 0x40 | 0x80 | 0x400 | 0x4000 | 0x800000 | 0x2000000
"""Inode flags c, S, d, A, m, j, C and x of chattr(1). A file with i or a cannot be replaced at all."""

_GET_FLAGS: Final = 0x80006601 | struct.calcsize("l") << 16
_SET_FLAGS: Final = 0x40006602 | struct.calcsize("l") << 16
"""ioctl(2); of a long, of which the kernel takes an int. MIPS and PowerPC have others: there no flags are found."""

ACCESS_LIST: Final = "system.posix_acl_access"
_VERSION: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<HHI")
"""Its form: tag, permissions and number of a user or group; Linux' posix_acl_xattr.h."""

_USER, _GROUP, _MASK, _OTHER = 0x01, 0x04, 0x10, 0x20

_NONE: Final = frozenset({errno.ENOTSUP, errno.ENOTTY, errno.ENOSYS, errno.EINVAL})
"""The file system has no such thing."""


class Attributes(Struct, frozen=True):
    """The extended attributes of a file by name, and those of its flags that another file can have too."""

    extended: dict[str, bytes]
    flags: int | None


def attributes_of(target: bytes) -> Attributes:
    """The attributes of a regular file; a link is not followed. Raises ``OSError``."""
    return Attributes(_extended(target), _flags_of(target))


def give_flags(handle: int, wanted: Attributes) -> None:
    """Give an empty file the flags of another one. Raises ``OSError`` that names the fault."""
    found = _flags(handle)
    if wanted.flags is None or found is None or found & FLAGS == wanted.flags:
        return
    try:
        fcntl.ioctl(handle, _SET_FLAGS, struct.pack("I4x", found & ~FLAGS | wanted.flags))
    except OSError as error:
        raise _unkept(error, "the flags that lsattr shows") from None


def give_extended(handle: int, wanted: Attributes, mode: int) -> None:
    """Give a file the extended attributes of another one, and no others. Raises ``OSError`` that names the fault.

    A file may have got an access control list of its folder. To set a list is to set the mode, so it gets this one:
    no reader finds the file open between the two.
    """
    has = _extended(handle)
    for name in has.keys() - wanted.extended.keys():
        if name.startswith("system."):
            try:
                os.removexattr(handle, name)
            except OSError as error:
                raise _unkept(error, f"that it has no {name}") from None
    for name, kept in wanted.extended.items():
        value = _list_with(kept, mode) if name == ACCESS_LIST else kept
        if has.get(name) != value:
            try:
                os.setxattr(handle, name, value)
            except OSError as error:
                raise _unkept(error, name) from None


def _list_with(access: bytes, mode: int) -> bytes:
    """An access control list as chmod(2) changes it: the group bits of a mode are its mask, acl(5)."""
    if len(access) % _ENTRY.size != _VERSION.size or access[: _VERSION.size] != _VERSION.pack(2):
        return access
    entries = [_ENTRY.unpack_from(access, at) for at in range(_VERSION.size, len(access), _ENTRY.size)]
    group = _MASK if any(tag == _MASK for tag, _, _ in entries) else _GROUP
    bits = {_USER: mode >> 6 & 7, group: mode >> 3 & 7, _OTHER: mode & 7}
    return _VERSION.pack(2) + b"".join(_ENTRY.pack(tag, bits.get(tag, old), who) for tag, old, who in entries)


def _extended(target: bytes | int) -> dict[str, bytes]:
    links = {} if isinstance(target, int) else {"follow_symlinks": False}
    try:
        names = os.listxattr(target, **links)
    except OSError as error:
        if error.errno in _NONE:
            return {}
        raise
    found = {}
    for name in names:
        if name not in OF_CONTENT:
            try:
                found[name] = os.getxattr(target, name, **links)
            except OSError as error:
                if error.errno not in _NONE | {errno.ENODATA}:
                    raise
    return found


def _flags_of(target: bytes) -> int | None:
    try:
        handle = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None  # Only root is sure to read a file whose content he may replace.
    try:
        flags = _flags(handle)
    finally:
        os.close(handle)
    return None if flags is None else flags & FLAGS


def _flags(handle: int) -> int | None:
    try:
        flags: int = struct.unpack("I4x", fcntl.ioctl(handle, _GET_FLAGS, bytes(8)))[0]
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise
    return flags


def _unkept(error: OSError, what: str) -> OSError:
    return OSError(error.errno, f"{os.strerror(error.errno or 0)}: {what} cannot be kept, so nothing was written")
