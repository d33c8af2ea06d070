"""What a device can do, told by the device."""

from __future__ import annotations

import inspect
from fnmatch import fnmatchcase

from device_agent import loader
from device_agent.host import Host


async def list_functions(_host: Host, *globs: str) -> list[str]:
    """Return the names of all functions, or of those in a module or matching a glob.

    CLI Example:

        outstation run '*' sys.list_functions
        outstation run '*' sys.list_functions test 'cmd.*'
    """
    return _chosen(globs)


async def doc(_host: Host, *names: str) -> dict[str, str]:
    """Return what is written about all functions, or about those in a module or matching a glob, by name.

    CLI Example:

        outstation run '*' sys.doc cmd.run
    """
    return {name: f"{loader.usage(name)}\n\n{inspect.getdoc(loader.find(name)) or ''}" for name in _chosen(names)}


def _chosen(globs: tuple[str, ...]) -> list[str]:
    """With no glob, everything; the name of a module means all in it, as in Salt."""
    return [
        name
        for name in loader.names()
        if not globs or any(name.partition(".")[0] == glob or fnmatchcase(name, glob) for glob in globs)
    ]
