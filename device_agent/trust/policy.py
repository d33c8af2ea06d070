"""What a site may order of its devices without a master: the grants in its certificate, which each device enforces.

    fun   globs or classes of functions          ("looks", "state.apply")
    arg   for a glob of functions: what their arguments may be ({"state.apply": ("site/*", "test=*")})
    org   for an origin, such as a Salt master: globs or classes of what it may order, instead of ``fun``
    ttl   longest life of a job, in seconds       grp   groups that a job may be for
    devmax, devttl, offl                          how many devices; how long their certificates count beyond the
                                                  site's own; how long the site may be without a master

An argument glob with a name, ``test=*``, is for the keyword argument of that name, any other for positional arguments.
Where a function has argument globs, every argument must fit one; and as a function without its argument often does the
most, there must be a positional one, unless the globs name none or the empty one stands among them.

The classes, and what a grant must look like for functions that are as good as a shell, are in ``reach``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol import limits, several
from device_agent.trust.argument_glob import compile_argument_glob, limiting_folder
from device_agent.trust.reach import Custom, can_cover, concerns, granted, no_custom, why_further

DEFAULT_GRANTS: Final = ("looks",)
"""What a site gets unless somebody grants it more: it may look and not touch."""

GLOBS_MAX: Final = 256
GLOB_CHARACTERS: Final = 256
SECONDS_MAX: Final = 10 * 366 * 86_400
DEVICES_MAX: Final = 1_000_000

_DAY = 86_400
_REQUIRED = ("fun", "ttl", "devmax", "devttl", "grp", "offl")
_OPTIONAL = ("arg", "org")
_wildcards = re.compile(r"\[!?\]?[^\]]*\]|[*?.]")
_named = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """The grants of one site."""

    fun: tuple[str, ...] = DEFAULT_GRANTS
    arg: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ttl: int = 3600
    devmax: int = limits.DEVICES_PER_STATION
    devttl: int = 365 * _DAY
    grp: tuple[str, ...] = ("all",)
    offl: int = 30 * _DAY
    org: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_claims(self) -> dict[str, Any]:
        """The policy as a certificate carries it. Raises ``Refused`` for one that no reader would take."""
        claims: dict[str, Any] = {
            "fun": list(self.fun),
            "ttl": self.ttl,
            "devmax": self.devmax,
            "devttl": self.devttl,
            "grp": list(self.grp),
            "offl": self.offl,
        }
        for name, globs in (("arg", self.arg), ("org", self.org)):
            if globs:
                claims[name] = {key: list(values) for key, values in globs.items()}
        self.from_claims(claims)
        return claims

    @classmethod
    def from_claims(cls, claims: Mapping[Any, Any]) -> SitePolicy:
        """The policy in a certificate. Raises ``Refused`` (``policy_invalid``, ``grant_too_wide``)."""
        unknown = [str(key)[:40] for key in claims if key not in {*_REQUIRED, *_OPTIONAL}]
        missing = [key for key in _REQUIRED if key not in claims]
        if unknown or missing:
            raise Refused("policy_invalid", ", ".join([*unknown, *(f"no {key}" for key in missing)]))
        policy = cls(
            fun=_globs(claims["fun"], "fun"),
            arg=_globs_by_name(claims.get("arg", {}), "arg"),
            ttl=_number(claims["ttl"], "ttl", SECONDS_MAX),
            devmax=_number(claims["devmax"], "devmax", DEVICES_MAX),
            devttl=_number(claims["devttl"], "devttl", SECONDS_MAX),
            grp=_globs(claims["grp"], "grp"),
            offl=_number(claims["offl"], "offl", SECONDS_MAX),
            org=_globs_by_name(claims.get("org", {}), "org"),
        )
        for glob in (*policy.fun, *(glob for globs in policy.org.values() for glob in globs)):
            _refuse_too_wide(glob)
        return policy


def check_function(
    policy: SitePolicy,
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any],
    *,
    origin: str = "",
    custom: Custom = no_custom,
) -> list[str]:
    """Whether the site may order this, and of several functions each of them. Raises ``Refused`` (``not_granted``).

    ``origin`` is who wants it where that is not the site itself; an origin has what was granted to it and nothing else.
    Returns the folders that paths among the arguments lie in by grant, and that links must not lead out of.
    """
    return [folder for call in several.calls(fun, arg, kwarg) for folder in _check_call(policy, call, origin, custom)]


def check_function_name(policy: SitePolicy, fun: str, *, custom: Custom = no_custom) -> None:
    """Check that the site may order a function with some arguments. Raises ``Refused`` (``not_granted``)."""
    if not any(can_cover(term, fun, custom) for term in policy.fun):
        raise Refused("not_granted", fun)


def _check_call(policy: SitePolicy, call: several.Call, origin: str, custom: Custom) -> list[str]:
    fun, arg, kwarg = call
    given = (arg, kwarg)
    shapes = [globs for functions, globs in policy.arg.items() if concerns(functions, fun, given, custom)]
    terms = policy.org.get(origin, ()) if origin else policy.fun
    if not any(granted(term, fun, given, spelled=bool(shapes), custom=custom) for term in terms):
        with_what = why_further(fun, given)
        words = f"{fun} with {with_what}" if with_what else fun
        raise Refused("not_granted", f"{words} to {origin}" if origin else words)
    for globs in shapes:
        _check_arguments(fun, arg, kwarg, globs)
    return [folder for globs in shapes for folder in _limiting_folders(arg, kwarg, globs)]


def _limiting_folders(arg: Sequence[Any], kwarg: Mapping[str, Any], globs: Sequence[str]) -> list[str]:
    """The folders of the globs that these values fit; globs that limit a value to no folder give none.

    Of two globs that a value fits the wider one limits it.
    """
    named, positional = _by_place(globs)
    given = [(value, positional) for value in arg]
    given += [(value, [glob for key, glob in named if key == name]) for name, value in kwarg.items()]
    folders: list[str] = []
    for value, fitting in given:
        for text in _texts(value):
            found = {limiting_folder(glob) for glob in fitting if _fits_one(text, [glob])} - {""}
            folders += sorted(each for each in found if not any(each.startswith(f"{other}/") for other in found))
    return folders


def _texts(value: Any) -> Iterator[str]:
    """The texts of a value, however deep they lie in lists."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _by_place(globs: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The globs for keyword arguments, with their names, and those for positional arguments."""
    named = [(found[1], found[2]) for glob in globs if (found := _named.fullmatch(glob))]
    return named, [glob for glob in globs if not _named.fullmatch(glob)]


def check_reach(policy: SitePolicy, *, group: str, seconds: float) -> None:
    """Whether a job of the site may be for this group and live this long. Raises ``Refused`` (``not_granted``).

    A job to a single device has no ``group``.
    """
    if group and group not in policy.grp:
        raise Refused("not_granted", f"the group {group[:40]}")
    if not 0 <= seconds <= policy.ttl:
        raise Refused("not_granted", f"a life of {seconds:.0f} seconds, granted are {policy.ttl}")


def _check_arguments(fun: str, arg: Sequence[Any], kwarg: Mapping[str, Any], globs: Sequence[str]) -> None:
    named, positional = _by_place(globs)
    if positional and not arg and "" not in positional:
        raise Refused("not_granted", f"{fun} without an argument")
    for value in arg:
        if not _value_fits(value, positional):
            raise Refused("not_granted", f"{fun} with the argument {str(value)[:80]!r}")
    for name, value in kwarg.items():
        if not _value_fits(value, [glob for key, glob in named if key == name]):
            raise Refused("not_granted", f"{fun} with {name[:40]}={str(value)[:80]!r}")


def _value_fits(value: Any, globs: Iterable[str]) -> bool:
    """Text fits as it is, other plain values as JSON writes them; what has parts fits when each part does."""
    if isinstance(value, list | tuple):
        return bool(value) and all(_value_fits(each, globs) for each in value)
    if value is None or isinstance(value, bool):
        value = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, int | float):
        value = repr(value)
    return isinstance(value, str) and _fits_one(value, globs)


def _fits_one(text: str, globs: Iterable[str]) -> bool:
    return any(compile_argument_glob(glob)(text) for glob in globs)


def _refuse_too_wide(glob: str) -> None:
    """A grant must name something: of ``*``, ``**``, ``*.*`` or ``[!x]*`` nothing is left without its wildcards."""
    if not _wildcards.sub("", glob):
        raise Refused("grant_too_wide", glob)


def _globs(value: Any, name: str) -> tuple[str, ...]:
    if type(value) not in {list, tuple} or len(value) > GLOBS_MAX:
        raise Refused("policy_invalid", f"{name} is not a list of at most {GLOBS_MAX}")
    for glob in value:
        if type(glob) is not str or len(glob) > GLOB_CHARACTERS:
            raise Refused("policy_invalid", f"{name} has an entry that is not a text of {GLOB_CHARACTERS} characters")
    return tuple(value)


def _globs_by_name(value: Any, name: str) -> dict[str, tuple[str, ...]]:
    if type(value) is not dict or len(value) > GLOBS_MAX:
        raise Refused("policy_invalid", f"{name} is not a map of at most {GLOBS_MAX}")
    if not all(type(key) is str and 1 <= len(key) <= GLOB_CHARACTERS for key in value):
        raise Refused("policy_invalid", f"{name} has a key that is not a text of {GLOB_CHARACTERS} characters")
    return {key: _globs(globs, f"{name} {key}") for key, globs in value.items()}


def _number(value: Any, name: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise Refused("policy_invalid", f"{name} is not a number up to {most}")
    return value
