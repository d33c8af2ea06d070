"""Typed text as values, as stock Salt reads it.

The reading is that of ``parse_input`` and ``yamlify_arg`` in ``salt/utils/args.py`` of Salt 3008. The table in
docs/command-line.md names each difference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import yaml

from device_agent.errors import UsageInvalid
from gateway.render_yaml import TooLarge
from gateway.typed_yaml import read, spelling_lost

NAMED: Final = re.compile(r"([^\d\W][\w.-]*)=(?!=)([^\n]*\n?)\Z")
"""Salt's pattern of NAME=VALUE: with a line break inside it is plain text. One at the end stays part of the value."""

UNREAD: Final = re.compile("[\t\r\n\x85\u2028\u2029]")
"""Text with one of these is never read as YAML, which folds line breaks. Salt looks for the first three."""

SIGNS: Final = re.compile(r"\s*(---\s|[&>|\ufeff]|!(\s|\Z))")
"""Signs of YAML at the beginning that are no part of the value; as an argument they are text."""

DIGITS: Final = re.compile("[0-9_]*_[0-9_]*")
JID_CHARACTERS: Final = 20

SENT_CHARACTERS: Final = 65_536
"""Longest NAME=VALUE that is taken apart where a program sent it: YAML of more would hold up the station."""


def split_arguments(typed: Sequence[str], unparsed: Collection[str] = ()) -> tuple[list[Any], dict[str, Any]]:
    """Read the positional and the named arguments of a function.

    Args:
        typed: the arguments as they were typed.
        unparsed: names whose values stay text, as with Salt's ``--no-parse``.

    Raises:
        UsageInvalid: an argument cannot be sent, or a name is given twice.
    """
    positional: list[Any] = []
    by_name: dict[str, Any] = {}
    for text in typed:
        name, rest = named(text)
        if name is None:
            found = value(rest)
            # Salt's condition_input: an integer as long as a jid is one.
            positional.append(str(found) if type(found) is int and len(str(found)) == JID_CHARACTERS else found)
        elif name in by_name:
            raise UsageInvalid(f"the argument {name} is given twice")
        else:
            by_name[name] = rest if name in unparsed else value(rest)
    return positional, by_name


def named(text: str) -> tuple[str | None, str]:
    """The name and the text of NAME=VALUE; no name and the whole text for any other argument."""
    match = NAMED.match(text)
    return (None, text) if match is None else (match[1], match[2])


def value(text: str) -> Any:
    """Read one argument. Raises ``UsageInvalid`` for a dict whose keys are not text, and for an endless one."""
    bare = text.strip()
    if bare in ("", "---", "...") or UNREAD.search(text) or SIGNS.match(text) or DIGITS.fullmatch(bare):
        return text
    if text == "None":
        return None
    try:
        parsed = read(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    except TooLarge as error:
        if text[0] not in "[{":
            return text
        raise UsageInvalid(f"an argument cannot be sent: {error}", found=text[:200]) from None
    if isinstance(parsed, dict | list):
        return parsed if text.startswith("{" if isinstance(parsed, dict) else "[") and can_be_sent(parsed) else text
    if isinstance(parsed, float | int) and not bare.startswith("!"):
        kept = can_be_sent(parsed) and not spelling_lost(re.sub(r"\s+#.*", "", bare), parsed)
        return parsed if kept else text
    if "#" in text and (parsed is None or isinstance(parsed, str)):
        return text
    return parsed if can_be_sent(parsed) else text


def can_be_sent(parsed: object) -> bool:
    """Whether a message can carry it: no sets, bytes, infinities, and no integer past 64 bits."""
    if isinstance(parsed, float):
        return math.isfinite(parsed)
    if isinstance(parsed, int):
        return -(2**63) <= parsed < 2**64
    if isinstance(parsed, list):
        return all(map(can_be_sent, parsed))
    if isinstance(parsed, dict):
        for key in parsed:
            if not isinstance(key, str):
                raise UsageInvalid(f"a key in an argument must be text: write '{key}' in quotes, found {key!r}")
        return all(map(can_be_sent, parsed.values()))
    return parsed is None or isinstance(parsed, str)


def taken_apart(arg: Sequence[Any], kwarg: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Take NAME=VALUE among positional arguments as named, as a Salt minion does (``load_args_and_kwargs``).

    Args:
        arg: the arguments by position, as a program sent them to a Salt master.
        kwarg: those by name. They go over names that are taken out of ``arg``.
    """
    positional: list[Any] = []
    by_name: dict[str, Any] = {}
    for given in arg:
        name, rest = named(given) if isinstance(given, str) and len(given) <= SENT_CHARACTERS else (None, given)
        if name is None:
            positional.append(given)
            continue
        try:
            by_name[name] = value(rest)
        except UsageInvalid:
            by_name[name] = rest
    return positional, {**by_name, **kwarg}
