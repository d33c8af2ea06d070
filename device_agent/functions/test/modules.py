"""What a device has: modules, settings, and functions that are called by another one."""

from __future__ import annotations

import builtins
import traceback
from typing import Any

from device_agent import loader
from device_agent.ended import Ended, FunctionFailed
from device_agent.functions.config import option
from device_agent.host import Host
from device_agent.own import Own


async def provider(_host: Host, module: str) -> str:
    """Return the module that answers for a name: itself, or an empty text when there is none.

    CLI Example:

        outstation run '*' test.provider service
    """
    return module if module in _modules() else ""


async def providers(_host: Host) -> dict[str, str]:
    """Return the modules, each with the name that it answers for.

    CLI Example:

        outstation run '*' test.providers
    """
    return {name: name for name in _modules()}


async def module_report(_host: Host) -> dict[str, list[str]]:
    """Return all modules and functions, in Salt's lists of how a module may reach them.

    CLI Example:

        outstation run '*' test.module_report
    """
    functions, modules = list(loader.names()), _modules()
    return {
        "functions": functions,
        "function_attrs": functions,
        "function_subs": functions,
        "modules": modules,
        "module_attrs": modules,
        "missing_attrs": [],
        "missing_subs": [],
    }


async def cross_test(host: Host, func: str, args: list[Any] | None = None, *, own: Own) -> Ended:
    """Call another function with positional arguments, and return what it returns.

    CLI Example:

        outstation run '*' test.cross_test test.echo '[hello]'
    """
    return await loader.call(func, host, args or [], {}, own)


async def get_opts(_host: Host, *, own: Own) -> dict[str, Any]:
    """Return all settings of the device that may be read, as ``config.items`` does.

    CLI Example:

        outstation run '*' test.get_opts
    """
    return own.settings


async def conf_test(host: Host, *, own: Own) -> Any:
    """Return the setting, grain or pillar value ``test.foo``; ``unconfigured`` when there is none.

    CLI Example:

        outstation run '*' test.conf_test
    """
    return await option(host, "test.foo", "unconfigured", own=own)


async def stack(_host: Host) -> str:
    """Return the stack of calls in which this function runs.

    CLI Example:

        outstation run '*' test.stack
    """
    return "".join(traceback.format_stack())


async def raise_exception(_host: Host, name: str, *args: Any, **kwargs: Any) -> bool:
    """Raise an exception of Python by its name, with these arguments; fail with ``False`` for another name.

    CLI Example:

        outstation run '*' test.raise_exception TypeError 'An integer is required'
    """
    found = getattr(builtins, name, None)
    # What is no ``Exception`` (``SystemExit``, ``KeyboardInterrupt``) would end the program and not the call.
    if not (isinstance(found, type) and issubclass(found, Exception)):
        raise FunctionFailed(f"{name[:100]} is no exception of Python; allowed: such as TypeError", value=False)
    raise found(*args, **kwargs)


def _modules() -> list[str]:
    return sorted({name.partition(".")[0] for name in loader.names()})
