"""Several functions in one job: how they travel, and how Salt writes them. Pure.

They travel as the arguments of a function that no release has and that no site can bring, for its module begins with an
underscore. A device or a station that does not know of it finds no such function and says so, and no grant is for that
name: whoever judges a job judges each of its calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import FUNCTION_PATTERN

SEVERAL: Final = "_several.functions"

NAMES_CHARACTERS: Final = limits.AUDIT_NAME_CHARACTERS
"""Longest list of names: an audit row and a return hold all of it, so none is cut off where it matters."""

ALONE: Final = frozenset({"saltutil.running", "saltutil.find_job", "saltutil.is_running", "saltutil.kill_job"}) | {
    *("saltutil.term_job", "saltutil.kill_all_jobs", "saltutil.term_all_jobs", "saltutil.signal_job")
}
"""Functions about jobs. They start at once, whatever else waits, or the gateway answers them: each is its own job."""

NAMED: Final = "__kwarg__"
"""In a map among the arguments it says that these have names."""

_function = re.compile(FUNCTION_PATTERN)


class Call(NamedTuple):
    """A function and what it is given."""

    fun: str
    arg: list[Any]
    kwarg: dict[str, Any]


def calls(fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> list[Call]:
    """What a job has called, in this order: for most jobs one function. Raises ``Refused``."""
    if fun != SEVERAL:
        return [Call(fun, list(arg), dict(kwarg))]
    if kwarg or not arg:
        raise Refused("malformed", "several functions are a list of them")
    found = [_call(each) for each in arg]
    names = ",".join(each.fun for each in found)
    if len(names) > NAMES_CHARACTERS:
        raise Refused(
            "too_many", f"the names of its functions have {len(names)} characters, at most {NAMES_CHARACTERS}"
        )
    for each in found:
        if each.fun in ALONE:
            raise Refused("not_alone", f"{each.fun} is about jobs: order it by itself")
    return found


def of_salt(names: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """The arguments of ``SEVERAL`` for names with a list of arguments each, as Salt has them. Raises ``Refused``."""
    if len(names) != len(args) or not all(isinstance(each, list) for each in args):
        raise Refused("malformed", f"{len(names)} functions take as many lists of arguments")
    return [[name, *split(given)] for name, given in zip(names, args, strict=True)]


def split(given: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position and by name; a map that holds the latter says so itself. Raises ``Refused``."""
    plain: list[Any] = []
    named: dict[str, Any] = {}
    for value in given:
        if isinstance(value, dict) and value.get(NAMED) is True:
            if not all(isinstance(key, str) for key in value):
                raise Refused("malformed", "an argument's name is text")
            named |= {key: entry for key, entry in value.items() if key != NAMED}
        else:
            plain.append(value)
    return plain, named


def joined(arg: Sequence[Any], kwarg: Mapping[str, Any]) -> list[Any]:
    """The same as Salt writes it."""
    return [*arg, {**kwarg, NAMED: True}] if kwarg else list(arg)


def title(fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> str:
    """A job's functions with commas between, for people. Where they are sealed to devices there is no more to say."""
    if fun != SEVERAL:
        return fun
    try:
        return ",".join(each.fun for each in calls(fun, arg, kwarg))
    except Refused:
        return SEVERAL


def in_salt(fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> tuple[str | list[str], list[Any]]:
    """The fields ``fun`` and ``arg`` of Salt's: of several functions a list of names, and a list of lists."""
    try:
        found = calls(fun, arg, kwarg)
    except Refused:
        return fun, list(arg)
    if fun != SEVERAL:
        return fun, joined(arg, kwarg)
    return [each.fun for each in found], [joined(each.arg, each.kwarg) for each in found]


def _call(each: object) -> Call:
    match each:
        case [str() as fun, list() as arg, dict() as kwarg] if _function.match(fun) and fun != SEVERAL:
            if max(len(arg), len(kwarg)) > limits.ARGUMENTS:
                raise Refused("malformed", f"{fun} has more than {limits.ARGUMENTS} arguments")
            return Call(fun, list(arg), dict(kwarg))
    raise Refused("malformed", "one of several functions is module.function with its arguments")
