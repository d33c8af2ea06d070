"""file.*: what is at a path, whose it is and what may be done with it."""

from __future__ import annotations

from typing import Any

from device_agent import system_text
from device_agent.accounts.database import Accounts
from device_agent.commands import ask, do
from device_agent.ended import FunctionFailed
from device_agent.functions.file._paths import BITS, absolute, mode_text, real, stat
from device_agent.functions.file.contents import get_hash
from device_agent.host import Host, Stat
from device_agent.shell_paths import argument, expanded

TYPES = {
    "file": "file",
    "directory": "dir",
    "link": "link",
    "block": "block",
    "character": "char",
    "fifo": "pipe",
    "socket": "socket",
}
ASKED = {"f": "-e", "r": "-r", "w": "-w", "x": "-x", 0: "-e", 4: "-r", 2: "-w", 1: "-x"}


async def stats(host: Host, path: str, hash_type: str | None = None, follow_symlinks: bool = True) -> dict[str, Any]:
    """Return what is at a path: inode, owner, group, times, size, mode, type and where it leads.

    CLI Example:

        outstation run '*' file.stats /etc/passwd
        outstation run '*' file.stats /etc/passwd hash_type=md5
    """
    path = await expanded(host, path)
    found = await stat(host, path, follow=follow_symlinks) or await stat(host, path, follow=False)
    if found is None:
        raise FunctionFailed(f"Path not found: {path}")
    shown: dict[str, Any] = {
        "inode": found.inode,
        "uid": found.uid,
        "gid": found.gid,
        "group": _name(found.group, found.gid),
        "user": _name(found.user, found.uid),
        "atime": found.atime,
        "mtime": found.mtime,
        "ctime": found.ctime,
        "size": found.size,
        "mode": mode_text(found.mode),
    }
    if hash_type:
        shown["sum"] = await get_hash(host, path, hash_type)
    return shown | {"type": TYPES[found.kind], "target": await real(host, path) if follow_symlinks else path}


async def lstat(host: Host, path: str) -> dict[str, Any]:
    """Return what is at a path, of a link what the link is, as ``lstat(2)`` names it; nothing where nothing is.

    CLI Example:

        outstation run '*' file.lstat /path/to/file
    """
    path = await absolute(host, path, "Path to file must be absolute.")
    found = await stat(host, path, follow=False)
    if found is None:
        return {}
    return {
        "st_atime": found.atime,
        "st_ctime": found.ctime,
        "st_gid": found.gid,
        "st_mode": BITS[found.kind] | found.mode,
        "st_mtime": found.mtime,
        "st_nlink": await _names(host, path),
        "st_size": found.size,
        "st_uid": found.uid,
    }


async def file_exists(host: Host, path: str) -> bool:
    """Return whether there is a file at a path.

    CLI Example:

        outstation run '*' file.file_exists /etc/passwd
    """
    return await _is(host, path, "file")


async def directory_exists(host: Host, path: str) -> bool:
    """Return whether there is a directory at a path.

    CLI Example:

        outstation run '*' file.directory_exists /etc
    """
    return await _is(host, path, "directory")


async def is_link(host: Host, path: str, nostat: bool = False) -> bool:  # noqa: ARG001 - Salt's argument; one look is enough
    """Return whether there is a symbolic link at a path.

    CLI Example:

        outstation run '*' file.is_link /path/to/link
    """
    return await _is(host, path, "link", follow=False)


async def is_hardlink(host: Host, path: str) -> bool | dict[str, Any]:
    """Return whether a file has more than one name.

    CLI Example:

        outstation run '*' file.is_hardlink /path/to/link
    """
    path = await absolute(host, path)
    if await stat(host, path, follow=False) is None:
        return {}
    return await _names(host, path) > 1


async def is_fifo(host: Host, name: str) -> bool:
    """Return whether there is a named pipe at a path.

    CLI Example:

        outstation run '*' file.is_fifo /dev/initctl
    """
    return await _is(host, name, "fifo")


async def is_chrdev(host: Host, name: str) -> bool:
    """Return whether there is a character device at a path.

    CLI Example:

        outstation run '*' file.is_chrdev /dev/null
    """
    return await _is(host, name, "character")


async def is_blkdev(host: Host, name: str) -> bool:
    """Return whether there is a block device at a path.

    CLI Example:

        outstation run '*' file.is_blkdev /dev/sda
    """
    return await _is(host, name, "block")


async def access(host: Host, path: str, mode: str | int) -> bool:
    """Return whether a path can be read (``r``), written (``w``) or run (``x``), or is there (``f``).

    CLI Example:

        outstation run '*' file.access /etc/passwd r
    """
    path = await absolute(host, path, "Path to link must be absolute.")
    if mode not in ASKED:
        raise FunctionFailed("Invalid mode specified. Allowed: f, r, w, x")
    return (await ask(host, "test", ASKED[mode], path)).ok


async def get_mode(host: Host, path: str, follow_symlinks: bool = True) -> str:
    """Return the mode of a file as four octal digits.

    CLI Example:

        outstation run '*' file.get_mode /etc/passwd
    """
    return str((await stats(host, path, follow_symlinks=follow_symlinks))["mode"])


async def get_uid(host: Host, path: str, follow_symlinks: bool = True) -> int:
    """Return the number of the user that a file belongs to.

    CLI Example:

        outstation run '*' file.get_uid /etc/passwd
    """
    return int((await stats(host, path, follow_symlinks=follow_symlinks))["uid"])


async def get_gid(host: Host, path: str, follow_symlinks: bool = True) -> int:
    """Return the number of the group that a file belongs to.

    CLI Example:

        outstation run '*' file.get_gid /etc/passwd
    """
    return int((await stats(host, path, follow_symlinks=follow_symlinks))["gid"])


async def get_user(host: Host, path: str, follow_symlinks: bool = True) -> str | int:
    """Return the user that a file belongs to; a number where it has no name.

    CLI Example:

        outstation run '*' file.get_user /etc/passwd
    """
    shown: str | int = (await stats(host, path, follow_symlinks=follow_symlinks))["user"]
    return shown


async def get_group(host: Host, path: str, follow_symlinks: bool = True) -> str | int:
    """Return the group that a file belongs to; a number where it has no name.

    CLI Example:

        outstation run '*' file.get_group /etc/passwd
    """
    shown: str | int = (await stats(host, path, follow_symlinks=follow_symlinks))["group"]
    return shown


async def uid_to_user(host: Host, uid: int | str) -> str | int:
    """Return the name of a user by number; the number where it has no name.

    CLI Example:

        outstation run '*' file.uid_to_user 0
    """
    found = await Accounts(host).user_or_number(str(uid))
    return found.name if found else uid


async def user_to_uid(host: Host, user: str | int | None) -> str | int:
    """Return the number of a user by name, the device's own without a name; empty where there is none.

    CLI Example:

        outstation run '*' file.user_to_uid root
    """
    if isinstance(user, int):
        return user
    if user is None:
        return int((await do(host, "id", "-u")).out)
    found = await Accounts(host).user(user) if user else None
    return found.uid if found else ""


async def gid_to_group(host: Host, gid: int | str) -> str | int:
    """Return the name of a group by number; the number where it has no name.

    CLI Example:

        outstation run '*' file.gid_to_group 0
    """
    found = await Accounts(host).group_or_number(str(gid))
    if found:
        return found.name
    return gid if isinstance(gid, int) else int(gid) if gid.isdecimal() else ""


async def group_to_gid(host: Host, group: str | int | None) -> str | int:
    """Return the number of a group by name; empty where there is none.

    CLI Example:

        outstation run '*' file.group_to_gid root
    """
    if isinstance(group, int):
        return group
    found = await Accounts(host).group(group) if group else None
    return found.gid if found else ""


async def _is(host: Host, path: str, kind: str, *, follow: bool = True) -> bool:
    found: Stat | None = await stat(host, await expanded(host, path), follow=follow)
    return found is not None and found.kind == kind


async def _names(host: Host, path: str) -> int:
    """How many names a file has: the second word of a long listing, which every ``ls`` prints."""
    words = system_text.words((await do(host, "ls", "-ldn", argument(path))).out)
    return int(words[1])


def _name(name: str, number: int) -> str | int:
    return number if name == str(number) else name
