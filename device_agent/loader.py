"""From "module.function" to its end: finds the function, binds its arguments, calls it, checks what came back.

The only dynamic import in the house, but for what a site brings (``custom``). A function is a public ``async def`` in a
file of ``device_agent/functions``, or in a file of a folder there. Its first parameter is the ``Host`` it works on, and
a parameter annotated ``Own`` is what the device has beside it: no argument from outside can set them. A name that
Python keeps for itself is written with an underscore behind it, as in Salt (``set_`` is ``grains.set``). Arguments are
held against the annotations of the parameters before the call.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import math
import pkgutil
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, partial
from types import ModuleType
from typing import Any, get_type_hints

import msgspec

from device_agent import functions
from device_agent.custom.beside import beside
from device_agent.custom.loading import Function, functions_in
from device_agent.ended import Ended, FunctionFailed
from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.host import Host, HostLost
from device_agent.own import Own
from device_agent.parts import leaves
from device_agent.protocol import limits
from device_agent.protocol.carried import carried
from device_agent.protocol.messages import FUNCTION_PATTERN, encode_value
from device_agent.trust.reach import Reach, outgrown

log = logging.getLogger(__name__)

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


async def call(
    name: str,
    host: Host,
    arg: list[Any],
    kwarg: dict[str, Any],
    own: Own | None = None,
    judged: Reach | None = "shell",
) -> Ended:
    """Call a function and say how it ended; every way to end but cancellation becomes an ``Ended`` that can be sent.

    ``judged`` is how far a function that a site brought reached when it was judged who may call it.
    """
    try:
        result = await _run(name, host, arg, kwarg, own or Own(), judged)
    except FunctionFailed as error:
        result = Ended(value=error.value, retcode=error.retcode, outcome="failed", why=error.why)
    except HostLost as error:
        result = Ended(retcode=1, outcome="unknown" if error.started else "unreachable", why=error.what)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a function raises is its outcome, not ours
        why = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
        result = Ended(retcode=1, outcome="failed", why=why)
    return checked(result if isinstance(result, Ended) else Ended(value=result))


async def known(own: Own) -> dict[str, Function]:
    """Every function that this device has, by name: those of its release, and those that its site brought."""
    custom = await own.custom.functions()
    return {name: find(name) for name in names()} | {name: custom[name] for name in sorted(custom)}


def check_arguments(name: str, arg: list[Any], kwarg: dict[str, Any]) -> None:
    """Raise ``BadArguments`` for arguments that a function of this release refuses, and ``NotFound``."""
    _bind(name, find(name), list(arg), dict(kwarg))


def usage(name: str, function: Function | None = None) -> str:
    """What a function takes, as in ``test.echo takes (text)``. Raises ``NotFound``."""
    return f"{name} takes {_bare(_signature(function or find(name)))}"


def signature(name: str) -> inspect.Signature:
    """The parameters of a function as a caller sees them, with their types. Raises ``NotFound``."""
    return signature_of(find(name))


def signature_of(function: Function) -> inspect.Signature:
    """The same of a function that was found."""
    return _signature(function)


def about(module_name: str) -> str:
    """What a module says of itself; empty when there is none or it does not load."""
    try:
        return inspect.getdoc(_module(module_name)) or "" if module_name in _module_names() else ""
    except ImportError:
        return ""


def not_loaded() -> list[str]:
    """The modules that are here and whose file does not load."""
    return [name for name in sorted(_module_names()) if not _loads(name)]


def _loads(module_name: str) -> bool:
    try:
        _functions_of(_module(module_name))
    except ImportError:
        return False
    return True


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
    """The functions of a file, or of all files of a folder."""
    folder = module.__name__.removeprefix(f"{functions.__name__}.")
    inner = (each.name for each in pkgutil.iter_modules(getattr(module, "__path__", ())))
    files = [module, *(_module(f"{folder}.{name}") for name in inner if not name.startswith("_"))]
    return {name: member for file in files for name, member in functions_in(file).items()}


@cache
def _signature(function: Function) -> inspect.Signature:
    """What a caller gives a function, with the annotations resolved."""
    hints = get_type_hints(function, include_extras=True)
    given = _given(function)
    return inspect.Signature(
        [
            each.replace(annotation=hints.get(each.name, Any))
            for each in inspect.signature(function).parameters.values()
            if each.name not in given
        ]
    )


@cache
def _given(function: Function) -> tuple[str, ...]:
    """The parameters that no caller can set: the host, and what is the device's own."""
    hints = get_type_hints(function)
    host, *rest = inspect.signature(function).parameters
    return host, *(name for name in rest if hints.get(name) is Own)


def _bare(taken: inspect.Signature) -> str:
    return str(taken.replace(parameters=[each.replace(annotation=each.empty) for each in taken.parameters.values()]))


def _bind(name: str, function: Function, arg: list[Any], kwarg: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as the parameters want them. Raises ``BadArguments``."""
    taken, takes = _signature(function), partial(usage, name, function)
    for kept in _given(function):
        if kept in kwarg:
            raise BadArguments(f"{takes()}; got an unexpected keyword argument {kept!r}")
    try:
        bound = taken.bind(*arg, **kwarg)
    except TypeError as error:
        raise BadArguments(f"{takes()}; {error}") from None
    for key, value in bound.arguments.items():
        parameter = taken.parameters[key]
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[key] = tuple(_converted(takes, key, each, parameter.annotation) for each in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[key] = {
                inner: _converted(takes, inner, each, parameter.annotation) for inner, each in value.items()
            }
        else:
            bound.arguments[key] = _converted(takes, key, value, parameter.annotation)
    return list(bound.args), bound.kwargs


def _converted(takes: Callable[[], str], key: str, value: Any, annotation: Any) -> Any:
    if annotation is Any:
        return value
    try:
        # Not strict: what was typed at a command line may arrive as text.
        converted = msgspec.convert(value, annotation, strict=False)
    except msgspec.ValidationError as error:
        try:
            # And a word of digits as a number.
            return msgspec.convert(str(value) if type(value) in (int, float) else value, annotation, strict=False)
        except msgspec.ValidationError:
            raise BadArguments(f"{takes()}; {key}: {error}") from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise BadArguments(f"{takes()}; {key}: {converted} is not a finite number")
    return converted


async def _run(name: str, host: Host, arg: list[Any], kwarg: dict[str, Any], own: Own, judged: Reach | None) -> Any:
    try:
        function, brought = await _found(name, own)
        positional, named = _bind(name, function, arg, kwarg)
    except Refused as refused:
        return Ended(retcode=1, outcome="refused", why=f"module_refused: {refused}")
    except NotFound as error:
        why = f"unknown_function: {error.what}; {error.allowed or 'sys.list_functions names those that do'}"
        return Ended(retcode=1, outcome="refused", why=why)
    except BadArguments as error:
        return Ended(retcode=1, outcome="refused", why=f"bad_arguments: {error.what}")
    if brought and outgrown(judged, own.custom.reach(name)):
        why = f"not_granted: {name} was brought or changed while the job waited, and reaches further; give it again"
        return Ended(retcode=1, outcome="refused", why=why)
    call = partial(beside, function) if brought else function
    return await call(host, *positional, **named, **dict.fromkeys(_given(function)[1:], own))


async def _found(name: str, own: Own) -> tuple[Function, bool]:
    """The function of the release, or the one that the site brought, and which of both.

    Raises ``NotFound`` and ``Refused``.
    """
    if _function_name.match(name) and name.partition(".")[0] not in _module_names():
        custom = await own.custom.function(name)
        if custom is not None:
            return custom, True
    return find(name), False


def checked(ended: Ended) -> Ended:
    """The same end if a message can carry it, else ``failed`` with the reason."""
    why = _cut(ended.why)
    if type(ended.retcode) is not int or not -(2**31) <= ended.retcode < 2**31:
        return _unfit(f"result_not_plain: the return code is {str(ended.retcode)[:40]}", why)
    try:
        value = carried(ended.value)
    except Refused as error:
        return _unfit(f"result_not_plain: {error.detail}", why)
    size = len(encode_value(value))
    if size > VALUE_BYTES:
        return _unfit(f"result_too_large: {size} bytes, at most {VALUE_BYTES}", why)
    return msgspec.structs.replace(ended, value=value, why=why)


def _unfit(reason: str, why: str) -> Ended:
    return Ended(retcode=1, outcome="failed", why=_cut(f"{reason}; {why}" if why else reason))


def _cut(why: str) -> str:
    return why[: limits.WHY_CHARACTERS].encode(errors="replace").decode()
