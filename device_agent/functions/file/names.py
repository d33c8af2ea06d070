"""file.*: what the name of a path says, and which paths there are."""

from __future__ import annotations

import posixpath

from device_agent.host import Host
from device_agent.shell_paths import globbed


async def pardir(_host: Host) -> str:
    """Return how a path names the directory above.

    CLI Example:

        outstation run '*' file.pardir
    """
    return posixpath.pardir


async def normpath(_host: Host, path: str) -> str:
    """Return a path without doubled slashes and without ``.`` and ``..``; the machine is not looked at.

    CLI Example:

        outstation run '*' file.normpath /a/b/../c
    """
    return posixpath.normpath(path)


async def basename(_host: Host, path: str) -> str:
    """Return the last part of a path.

    CLI Example:

        outstation run '*' file.basename /etc/hosts
    """
    return posixpath.basename(path)


async def dirname(_host: Host, path: str) -> str:
    """Return a path without its last part.

    CLI Example:

        outstation run '*' file.dirname /etc/hosts
    """
    return posixpath.dirname(path)


async def join(_host: Host, *args: str) -> str:
    """Return parts of a path as one path.

    CLI Example:

        outstation run '*' file.join / usr local bin
    """
    return posixpath.join(*args) if args else ""


async def path_exists_glob(host: Host, path: str) -> bool:
    """Return whether there is anything that a shell pattern matches.

    CLI Example:

        outstation run '*' file.path_exists_glob '/etc/pam*/pass*'
    """
    return bool(await globbed(host, path))
