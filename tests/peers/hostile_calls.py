"""Every call that is to be tried: each function that is no shell, each of its arguments, each hostile value."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from device_agent import loader
from device_agent.trust.reach import FUNCTIONS, Reach, reach_of
from tests.peers.function_place import ALWAYS, VALUES, Entry, entries
from tests.peers.function_places_from_b_to_pillar import TABLE as FIRST
from tests.peers.function_places_from_pkg_to_user import TABLE as LAST

ENTRIES: Final[dict[str, Entry]] = entries({**FIRST, **LAST})

EVIL: Final = "/evil"
"""The folder of what an attacker brought: a unit, a script, a package, and a file that only root may read."""

HOSTILE: Final = (
    f"{EVIL}/evil.service",
    f"../../..{EVIL}/evil",
    f"/{EVIL}//./evil",
    f"{EVIL}/secret",
    f"kernel/../../..{EVIL}/secret",
    "kernel.//.//.//.evil.secret",
    f"file://{EVIL}/evil",
    "http://127.0.0.1:9/evil.sh",
    f"salt://../..{EVIL}/evil",
    f"{EVIL}/evil.deb",
    "./evil.ipk",
    "-x",
    f"--root={EVIL}",
    f"-f{EVIL}/secret",
    f"--service={EVIL}",
    "*",
    f"{EVIL}/*",
    "[a-z]*",
    "evil@x",
    "evil@-evil-evil",
    "debug-shell",
    "rescue.target",
    "evil.mount",
    f"x; touch {EVIL}/ran",
    f"$(touch {EVIL}/ran)",
    f"`touch {EVIL}/ran`",
    f"x\ntouch {EVIL}/ran\n",
    f"~root{EVIL}",
    "evil\n",
)


class Call(NamedTuple):
    """One call. ``argument`` has the hostile value; it is empty for a call with harmless values alone."""

    fun: str
    argument: str
    value: Any
    arg: list[Any]
    kwarg: dict[str, Any]

    @property
    def reach(self) -> Reach | None:
        """Its class, as the device, the gateway and the rules judge it."""
        return reach_of(self.fun, (self.arg, self.kwarg))

    def __str__(self) -> str:
        return f"{self.fun} {self.arg} {self.kwarg}"


def named() -> dict[str, dict[str, str]]:
    """Every function that is no shell, with its arguments as a table would name them; the kinds are empty."""
    found = {}
    for fun in (fun for fun, reach in FUNCTIONS.items() if reach != "shell"):
        parameters = loader.signature(fun).parameters.values()
        found[fun] = {_written(each): "" for each in parameters}
    return found


def calls_of(fun: str, hostile: tuple[str, ...] = HOSTILE, *, by_name_alone: bool = False) -> Iterator[Call]:
    """The calls of one function: one that is harmless, then each argument with each value: by name, by place, and
    beside all others.
    """
    parameters = loader.signature(fun).parameters
    yield _call(fun, "", None)
    for each in parameters.values():
        for value in hostile:
            yield _call(fun, each.name, value)
            if by_name_alone:
                continue
            yield _call(fun, each.name, value, whole=True)
            if each.kind is each.POSITIONAL_OR_KEYWORD:
                yield _placed(fun, each.name, value)


def _call(fun: str, hostile: str, value: Any, *, whole: bool = False) -> Call:
    """One call; ``whole`` gives the arguments that may be left out as well."""
    kinds = ENTRIES[fun].kinds
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    for each in loader.signature(fun).parameters.values():
        kind = kinds[_written(each)]
        given = value if each.name == hostile else VALUES[kind]
        wanted = each.name == hostile or kind in ALWAYS
        if each.kind is each.VAR_POSITIONAL:
            # What stands before it is given by its place then.
            arg = [*kwarg.values(), given] if wanted else []
            kwarg = {} if wanted else kwarg
        elif each.kind is each.VAR_KEYWORD:
            kwarg |= _named(fun, hostile == each.name, value)
        elif wanted or whole or each.default is each.empty:
            kwarg[each.name] = given
    return Call(fun, hostile, value, arg, kwarg)


def _placed(fun: str, hostile: str, value: Any) -> Call:
    """The same call with a hostile value among the positional arguments, behind those before it."""
    call = _call(fun, hostile, value)
    arg: list[Any] = []
    for each in loader.signature(fun).parameters.values():
        default = VALUES[ENTRIES[fun].kinds[_written(each)]] if each.default is each.empty else each.default
        arg.append(call.kwarg.pop(each.name, default))
        if each.name == hostile:
            break
    return call._replace(arg=arg)


def _named(fun: str, hostile: bool, value: Any) -> dict[str, Any]:
    """Named arguments of a function that takes any: what it needs, and a hostile one beside."""
    given: dict[str, Any] = {"function": "test.ping", "seconds": 60} if fun.startswith("schedule.") else {}
    if hostile:
        given |= {"name": value} if fun == "file.find" else {"job_args": [value]} if given else {"value": value}
    return given


def _written(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
