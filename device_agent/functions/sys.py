"""What a device can do, told by the device."""

from __future__ import annotations

import inspect
from fnmatch import fnmatchcase
from typing import Any

from device_agent import loader
from device_agent.custom.loading import Function
from device_agent.host import Host
from device_agent.own import Own
from device_agent.trust import reach
from device_agent.trust.reach_arguments import FURTHER


async def list_functions(_host: Host, *globs: str, own: Own) -> list[str]:
    """Return the names of all functions, or of those in a module or matching a glob.

    CLI Example:

        outstation run '*' sys.list_functions
        outstation run '*' sys.list_functions test 'cmd.*'
    """
    return list(await _chosen(globs, own))


async def list_modules(_host: Host, *globs: str, own: Own) -> list[str]:
    """Return the names of all modules, or of those that have a function matching a glob.

    CLI Example:

        outstation run '*' sys.list_modules
        outstation run '*' sys.list_modules 's*'
    """
    return sorted({name.partition(".")[0] for name in await _chosen(globs, own)})


async def doc(_host: Host, *names: str, own: Own) -> dict[str, str]:
    """Return what is written about all functions, or about those in a module or matching a glob, by name.

    It begins with what a function takes and its class: ``looks``, ``reads``, ``changes`` or ``shell``.

    CLI Example:

        outstation run '*' sys.doc cmd.run
    """
    return {
        name: f"{loader.usage(name, found)}\n{_class(name, own)}\n\n{inspect.getdoc(found) or ''}"
        for name, found in (await _chosen(names, own)).items()
    }


async def argspec(_host: Host, module: str = "", *, own: Own) -> dict[str, dict[str, Any]]:
    """Return the arguments of all functions, or of those in a module or matching a glob, and their defaults.

    CLI Example:

        outstation run '*' sys.argspec cmd.run
        outstation run '*' sys.argspec 'file.*'
    """
    found = await _chosen((module,) if module else (), own)
    return {name: _argspec(loader.signature_of(each)) for name, each in found.items()}


async def reload_modules(_host: Host) -> bool:
    """Return ``True``: those of the release change with it, and what a site brings is looked at with every call.

    CLI Example:

        outstation run '*' sys.reload_modules
    """
    return True


async def _chosen(globs: tuple[str, ...], own: Own) -> dict[str, Function]:
    """With no glob, everything; the name of a module means all in it, as in Salt."""
    return {
        name: found
        for name, found in (await loader.known(own)).items()
        if not globs
        or any(name.partition(".")[0] == glob.removesuffix(".") or fnmatchcase(name, glob) for glob in globs)
    }


def _class(name: str, own: Own) -> str:
    found = reach.reach_of(name, custom=own.custom.reach)
    if found is None:
        return "in no class"
    further = "".join(f"; {each.reach} with {each.words}" for each in FURTHER.get(name, ()))
    carried = "; shell where it is to call what reads or is shell" if name in reach.CARRIERS else ""
    told = "; shell where what it configures tells more than anybody may know" if name in reach.TELLING else ""
    return f"{reach.words(found)}{further}{carried}{told}"


def _argspec(taken: inspect.Signature) -> dict[str, Any]:
    kinds = inspect.Parameter
    each = list(taken.parameters.values())
    named = [one for one in each if one.kind in {kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY}]
    # Salt lists the defaults of the last arguments; what must be given by name and has none comes first here too.
    named.sort(key=lambda one: one.default is not kinds.empty)
    return {
        "args": [one.name for one in named] or None,
        "varargs": True if any(one.kind is kinds.VAR_POSITIONAL for one in each) else None,
        "kwargs": True if any(one.kind is kinds.VAR_KEYWORD for one in each) else None,
        "defaults": [one.default for one in named if one.default is not kinds.empty] or None,
    }
