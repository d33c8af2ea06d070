"""Arguments are fitted to a function, as Salt does it. Pure.

Names that are Salt's own (``__user__``, ``__pub_jid`` …) are no arguments of the function and are left out.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from device_agent.errors import UsageInvalid
from gateway.calls.functions import Run

log = logging.getLogger(__name__)

_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def bound(
    run: Run, said: str, arg: Sequence[Any], kwarg: Mapping[str, Any], *, direct: bool = False
) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the named arguments of a call.

    ``direct``: the names stood under the function itself, as in a reactor file; then those without a default become
    positional ones, and the others get their defaults, as Salt's clients do it. Raises ``UsageInvalid``.
    """
    given = {name: value for name, value in kwarg.items() if not name.startswith("__")}
    parameters = _parameters(run)
    fitted, named = list(arg), given
    if direct:
        fitted, named = _fitted(parameters, arg, given)
    try:
        _signature(run).bind(*fitted, **named)
    except TypeError as error:
        unknown = [name for name in named if not _takes(parameters, name)]
        what = f"{said} has no argument {unknown[0]!r}" if unknown else f"{said}: {error}"
        raise UsageInvalid(
            what,
            error_id="calls.arguments",
            where=said,
            found=", ".join([*(repr(value)[:80] for value in arg), *sorted(given)]) or "no arguments",
            allowed=words(run),
        ) from None
    _check_types(run, said, parameters, fitted, named)
    return fitted, named


def words(run: Run) -> str:
    """The arguments of a function as they are written."""
    shown = []
    for name, parameter in _parameters(run).items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            shown.append(f"*{name}")
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            shown.append(f"**{name}")
        elif parameter.default is inspect.Parameter.empty:
            shown.append(name)
        else:
            shown.append(f"{name}={parameter.default!r}")
    return ", ".join(shown) or "no arguments"


def argspec(run: Run) -> dict[str, Any]:
    """The arguments in the shape of Salt's ``sys.argspec``."""
    plain = [parameter for parameter in _parameters(run).values() if parameter.kind in _KINDS]
    defaults = [parameter.default for parameter in plain if parameter.default is not inspect.Parameter.empty]
    kinds = {parameter.kind: name for name, parameter in _parameters(run).items()}
    return {
        "args": [parameter.name for parameter in plain],
        "defaults": defaults or None,
        "kwargs": kinds.get(inspect.Parameter.VAR_KEYWORD),
        "varargs": kinds.get(inspect.Parameter.VAR_POSITIONAL),
    }


@lru_cache(maxsize=1024)
def _signature(run: Run) -> inspect.Signature:
    """Without the first parameter, which is the running call."""
    whole = inspect.signature(run)
    return whole.replace(parameters=list(whole.parameters.values())[1:])


def _parameters(run: Run) -> Mapping[str, inspect.Parameter]:
    return _signature(run).parameters


@lru_cache(maxsize=1024)
def _hints(run: Run) -> dict[str, Any]:
    """The kinds of the arguments; none where a site's own function names what only its author's type checker knows."""
    try:
        return get_type_hints(run)
    except Exception as error:  # noqa: BLE001 - a hint is an expression of somebody else, which may raise anything
        log.warning("arguments are not checked by kind, a hint means nothing here fun=%s error=%r", run, error)
        return {}


def _takes(parameters: Mapping[str, inspect.Parameter], name: str) -> bool:
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return True
    return name in parameters and parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL


def _fitted(
    parameters: Mapping[str, inspect.Parameter], arg: Sequence[Any], given: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    fitted, named = list(arg), dict(given)
    for place, (name, parameter) in enumerate(parameters.items()):
        if parameter.kind not in _KINDS or place < len(arg):
            continue
        if parameter.default is not inspect.Parameter.empty:
            named.setdefault(name, parameter.default)
        elif name in named and place == len(fitted):
            fitted.append(named.pop(name))
    return fitted, named


def _check_types(
    run: Run,
    said: str,
    parameters: Mapping[str, inspect.Parameter],
    arg: Sequence[Any],
    kwarg: Mapping[str, Any],
) -> None:
    hints = _hints(getattr(run, "__func__", run))
    plain = [name for name, parameter in parameters.items() if parameter.kind in _KINDS]
    for name, value in [*zip(plain, arg, strict=False), *kwarg.items()]:
        if name not in parameters or name not in hints:
            continue
        try:
            msgspec.convert(value, hints[name])
        except TypeError:
            # A hint that cannot be checked, as two kinds of list in one.
            continue
        except msgspec.ValidationError as error:
            raise UsageInvalid(
                f"the argument {name} of {said} is of another kind",
                error_id="calls.arguments",
                where=name,
                found=repr(value)[:80],
                allowed=str(error).partition(" - at ")[0].replace("`", ""),
            ) from None
