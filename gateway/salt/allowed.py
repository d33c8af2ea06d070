"""What whoever typed ``salt`` may do, as his master says it with the order (``auth_list``). Pure.

A master that has others below it cannot know whom a target means, so it leaves the decision to them. What is not
understood of a list grants nothing: who is not named may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from device_agent.errors import UsageInvalid
from device_agent.protocol.targeting import compile_target

PATTERN_CHARACTERS = 256
STARS = 3
"""Most repetitions in a pattern: none of them takes long, whatever it is held against."""


class Targeted(Protocol):
    """What a target means: a device, or the gateway under its own id."""

    @property
    def id(self) -> str: ...

    @property
    def grains(self) -> Mapping[str, Any]: ...


_plain = re.compile(r"[\w.*|^$\\-]*", re.ASCII)


def refusals(
    auth_list: Sequence[Any], functions: Iterable[str], devices: Sequence[Targeted], user: str
) -> dict[str, str]:
    """The devices that the list does not let each of these functions run on, and why. An empty list is the superuser's.

    Each is asked for by its own name: what a pattern says of ``test.ping,cmd.run`` says nothing.
    """
    refused: dict[str, str] = {}
    for fun in functions:
        refused = _refusals(auth_list, fun, devices, user) | refused
    return refused


def _refusals(auth_list: Sequence[Any], fun: str, devices: Sequence[Targeted], user: str) -> dict[str, str]:
    if not auth_list:
        return {}
    anywhere = any(isinstance(entry, str) and _fits(entry, fun) for entry in auth_list)
    if anywhere:
        return {}
    refused = {}
    for device in devices:
        if not any(_grants(entry, fun, device) for entry in auth_list):
            refused[device.id] = f"not_granted: the master does not let {user} run {fun} here"
    return refused


def _grants(entry: object, fun: str, device: Targeted) -> bool:
    """Whether an entry ``{target: functions}`` is about this device and names the function."""
    if not isinstance(entry, dict):
        return False
    return any(_names(functions, fun) and _means(tgt, device) for tgt, functions in entry.items())


def _names(functions: object, fun: str) -> bool:
    """Whether a function is among those named. What limits arguments, or names runners, is none of them."""
    if isinstance(functions, str):
        return _fits(functions, fun)
    return isinstance(functions, list) and any(isinstance(each, str) and _fits(each, fun) for each in functions)


def _fits(pattern: str, fun: str) -> bool:
    # Salt's lists are regular expressions. They come from a master that may order this, and stay short all the same.
    if len(pattern) > PATTERN_CHARACTERS or pattern.count("*") > STARS or not _plain.fullmatch(pattern):
        return False
    try:
        return re.fullmatch(pattern, fun) is not None
    except re.error:
        return False


def _means(tgt: object, device: Targeted) -> bool:
    if not isinstance(tgt, str) or not tgt:
        return False
    try:
        return compile_target(tgt, "compound").matches(device.id, device.grains)
    except UsageInvalid:
        return False
