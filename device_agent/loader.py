"""From "module.function" to its end: finds the function, binds its arguments, calls it, checks what came back.

The only dynamic import in the house. A function is a public ``async def`` in a file of ``device_agent/functions``; its
first parameter is the ``Host`` it works on, which no argument from outside can set. Arguments are held against the
annotations of the parameters before the call.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import math
import pkgutil
import re
from collections.abc import Callable, Coroutine
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import Any, get_type_hints

import msgspec

from device_agent import functions
from device_agent.ended import Ended, FunctionFailed
from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.host import Host
from device_agent.parts import leaves
from device_agent.protocol import limits
from device_agent.protocol.messages import FUNCTION_PATTERN, check_plain, encode_value

log = logging.getLogger(__name__)

Function = Callable[..., Coroutine[Any, Any, Any]]

VALUE_BYTES = limits.MESSAGE_BYTES - 20 * 1024
"""Largest encoded value: the rest of a message is for a ``why`` of four-byte characters and the other fields."""

_function_name = re.compile(FUNCTION_PATTERN)


class BadArguments(OutstationError):
    """Arguments that a function does not take."""

    default_id = "function.bad_arguments"


@cache
def names() -> tuple[str, ...]:
    """Every function of this device, sorted. The first call imports them all; call it once before the loop runs."""
    found = []
    for module_name in _module_names():
        try:
            found += [f"{module_name}.{name}" for name in _functions_of(_module(module_name))]
        except ImportError as error:
            log.error("functions do not load module=%s error=%s", module_name, error)
    return tuple(sorted(found))


def find(name: str) -> Function:
    """The function called ``module.function``. Raises ``NotFound`` with the nearest names."""
    module_name, _, function_name = name.partition(".")
    if _function_name.match(name) and module_name in _module_names():
        try:
            found = _functions_of(_module(module_name)).get(function_name)
        except ImportError as error:
            raise NotFound(f"{name} does not load here: {error}", found=name) from error
        if found is not None:
            return found
    near = get_close_matches(name[:130], names(), n=3)
    raise NotFound(
        f"there is no {name[:130]} here",
        found=name[:130],
        allowed=f"nearest: {', '.join(near)}" if near else "sys.list_functions names them all",
    )


async def call(name: str, host: Host, arg: list[Any], kwarg: dict[str, Any]) -> Ended:
    """Call a function and say how it ended; every way to end but cancellation becomes an ``Ended`` that can be sent."""
    try:
        result = await _run(name, host, arg, kwarg)
    except FunctionFailed as error:
        result = Ended(value=error.value, retcode=error.retcode, outcome="failed", why=error.why)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a function raises is its outcome, not ours
        why = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
        result = Ended(retcode=1, outcome="failed", why=why)
    return _checked(result if isinstance(result, Ended) else Ended(value=result))


def usage(name: str) -> str:
    """What a function takes, as in ``test.echo takes (text)``. Raises ``NotFound``."""
    return f"{name} takes {_bare(_signature(find(name)))}"


@cache
def _module_names() -> frozenset[str]:
    return frozenset(module.name for module in pkgutil.iter_modules(functions.__path__) if module.name[0] != "_")


@cache
def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{functions.__name__}.{name}")
    except Exception as error:
        # Whatever is wrong inside one file, the others still work.
        raise ImportError(f"{type(error).__name__}: {error}") from error


@cache
def _functions_of(module: ModuleType) -> dict[str, Function]:
    return {
        name: member
        for name, member in vars(module).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(member) and member.__module__ == module.__name__
    }


@cache
def _signature(function: Function) -> inspect.Signature:
    """What a function takes beside the host, with the annotations resolved."""
    hints = get_type_hints(function, include_extras=True)
    _, *taken = inspect.signature(function).parameters.values()
    return inspect.Signature([each.replace(annotation=hints.get(each.name, Any)) for each in taken])


@cache
def _host_name(function: Function) -> str:
    return next(iter(inspect.signature(function).parameters))


def _bare(signature: inspect.Signature) -> str:
    return str(
        signature.replace(parameters=[each.replace(annotation=each.empty) for each in signature.parameters.values()])
    )


def _bind(name: str, function: Function, arg: list[Any], kwarg: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as the parameters want them. Raises ``BadArguments``."""
    signature = _signature(function)
    host_name = _host_name(function)
    if host_name in kwarg:
        raise BadArguments(f"{usage(name)}; got an unexpected keyword argument {host_name!r}")
    try:
        bound = signature.bind(*arg, **kwarg)
    except TypeError as error:
        raise BadArguments(f"{usage(name)}; {error}") from None
    for key, value in bound.arguments.items():
        parameter = signature.parameters[key]
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[key] = tuple(_converted(name, key, each, parameter.annotation) for each in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[key] = {
                inner: _converted(name, inner, each, parameter.annotation) for inner, each in value.items()
            }
        else:
            bound.arguments[key] = _converted(name, key, value, parameter.annotation)
    return list(bound.args), bound.kwargs


def _converted(name: str, key: str, value: Any, annotation: Any) -> Any:
    if annotation is Any:
        return value
    try:
        # Not strict: what was typed at a command line may arrive as text.
        converted = msgspec.convert(value, annotation, strict=False)
    except msgspec.ValidationError as error:
        raise BadArguments(f"{usage(name)}; {key}: {error}") from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise BadArguments(f"{usage(name)}; {key}: {converted} is not a finite number")
    return converted


async def _run(name: str, host: Host, arg: list[Any], kwarg: dict[str, Any]) -> Any:
    try:
        function = find(name)
        positional, named = _bind(name, function, arg, kwarg)
    except NotFound as error:
        why = f"unknown_function: {error.what}; {error.allowed or 'sys.list_functions names those that do'}"
        return Ended(retcode=1, outcome="refused", why=why)
    except BadArguments as error:
        return Ended(retcode=1, outcome="refused", why=f"bad_arguments: {error.what}")
    return await function(host, *positional, **named)


def _checked(ended: Ended) -> Ended:
    """The same end if a message can carry it, else ``failed`` with the reason."""
    why = _cut(ended.why)
    if type(ended.retcode) is not int or not -(2**31) <= ended.retcode < 2**31:
        return _unfit(f"result_not_plain: the return code is {str(ended.retcode)[:40]}", why)
    try:
        value = _plain(ended.value)
        check_plain(value)
        size = len(encode_value(value))
    except Refused as error:
        return _unfit(f"result_not_plain: {error.detail}", why)
    except (OverflowError, UnicodeEncodeError, TypeError, ValueError) as error:
        # An integer past 64 bits, or text with half a surrogate pair.
        return _unfit(f"result_not_plain: {error}", why)
    if size > VALUE_BYTES:
        return _unfit(f"result_too_large: {size} bytes, at most {VALUE_BYTES}", why)
    return Ended(value=value, retcode=ended.retcode, outcome=ended.outcome, why=why)


def _unfit(reason: str, why: str) -> Ended:
    return Ended(retcode=1, outcome="failed", why=_cut(f"{reason}; {why}" if why else reason))


def _cut(why: str) -> str:
    return why[: limits.WHY_CHARACTERS].encode(errors="replace").decode()


def _plain(value: Any, depth: int = 0) -> Any:
    """Tuples and sets as lists, at every level; sets in the order of their text, so that two devices agree."""
    if depth > limits.VALUE_DEPTH:
        raise Refused("too_deep", f"values nest at most {limits.VALUE_DEPTH} deep")
    if isinstance(value, dict):
        return {key: _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (set, frozenset)):
        return [_plain(inner, depth + 1) for inner in sorted(value, key=repr)]
    if isinstance(value, (list, tuple)):
        return [_plain(inner, depth + 1) for inner in value]
    return value
