"""Names of devices from a template: ``{serial}``, ``{model}``, ``{did}``, ``{number}`` (``{number:04}`` pads it).

A serial and a model are what a device says of itself, so what comes out is checked like any other name from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import count

from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol.messages import DEVICE_ID_PATTERN
from device_agent.trust.keys import DID_PATTERN

DEFAULT_TEMPLATE = "{serial}"
TEMPLATE_CHARACTERS = 128
FAMILIES = 1000

_name = re.compile(DEVICE_ID_PATTERN)
_did = re.compile(DID_PATTERN)
_field = re.compile(r"\{(?:(serial|model|did|number)|number:0([1-9]))\}")


def is_name(text: str) -> bool:
    """Whether a device may have this name."""
    return _name.match(text) is not None


def proposed(serial: str) -> str:
    """The name that a device proposes by its serial number; empty where no device should go by it.

    What looks like another device's identity is none, nor is what a command would read as a login: ``ink@elsewhere``.
    """
    return serial if is_name(serial) and "@" not in serial and not _did.match(serial) else ""


def check_template(template: str) -> str:
    """The template, if names can come out of it. Raises ``UsageInvalid``."""
    rest = _field.sub("", template)
    filled = _field.sub("0", template)
    if not template or len(template) > TEMPLATE_CHARACTERS or "{" in rest or "}" in rest or not is_name(filled):
        raise UsageInvalid(
            "no name can come out of this template",
            where="name",
            found=template[:TEMPLATE_CHARACTERS],
            allowed="letters, digits and _ . : @ -, with {serial}, {model}, {did}, {number} or {number:04} in it",
        )
    return template


def tells_apart(template: str) -> bool:
    """Whether devices of one model get different names."""
    return any(found[1] != "model" for found in _field.finditer(template))


class Names:
    """Gives out names that nobody has."""

    def __init__(self, holder: Callable[[str], str | None]) -> None:
        self._holder = holder
        self._numbers: dict[str, int] = {}

    def choose(self, template: str, did: str, serial: str, model: str) -> str:
        """A free name. Raises ``Refused`` (``bad_name``, ``name_taken``) in words for whoever decides about a key."""
        facts = {"serial": serial, "model": model, "did": did}
        # Where the search for a number ended last it begins again, so that it does not grow with the site.
        family = _filled(template, facts, 0)
        numbered = any(found[1] in (None, "number") for found in _field.finditer(template))
        for number in count(self._numbers.get(family, 1)):
            name = _filled(template, facts, number)
            if not is_name(name):
                raise Refused("bad_name", f"no device can be called {name!r}: give it a name with --name")
            holder = self._holder(name)
            if holder is None:
                if numbered:
                    self._remember(family, number)
                return name
            if not numbered:
                raise Refused("name_taken", f"{name} is {holder}: revoke that one, or give this one a --name")
        raise AssertionError("numbers do not end")

    def _remember(self, family: str, number: int) -> None:
        if len(self._numbers) >= FAMILIES:
            self._numbers.clear()
        self._numbers[family] = number


def _filled(template: str, facts: Mapping[str, str], number: int) -> str:
    """The template in one pass: what a device says of itself is never read as a template."""

    def value(found: re.Match[str]) -> str:
        return facts[found[1]] if found[1] in facts else f"{number:0{found[2] or 1}}"

    return _field.sub(value, template)
