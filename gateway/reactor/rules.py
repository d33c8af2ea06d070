"""The ``reactor:`` map: which files belong to which tags. Pure; the shapes are Salt's.

An entry is a mapping of one tag glob to a path or a list of paths. All entries that match an event contribute, in the
order of the list. What is no such entry is left out, as Salt does, and named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace

from device_agent.protocol import tags
from gateway import render_yaml
from gateway.reactor.throttle import Throttle
from gateway.render_names import map_names

ENTRIES: Final = 10_000
PATHS: Final = 256
GLOB_CHARACTERS: Final = 512
PATH_CHARACTERS: Final = 4096
KEY: Final = "reactor"
THROTTLE: Final = "reactor_throttle"


class Rule(Struct, frozen=True):
    """A tag glob and the paths of its files, which may be globs as well. ``number`` is its place in the list.

    ``added``: while the station ran, and not by its settings.
    """

    number: int
    glob: str
    paths: tuple[str, ...]
    added: bool = False


class RuleMap(Struct, frozen=True):
    """The rules in their order, and what was left out and why."""

    rules: tuple[Rule, ...] = ()
    skipped: tuple[str, ...] = ()
    throttles: dict[str, Throttle] = {}

    def matching(self, tag: str) -> list[Rule]:
        """The rules for a tag."""
        return [rule for rule in self.rules if tags.matches(rule.glob, tag)]

    def paths(self) -> list[str]:
        """Every path once."""
        return list(dict.fromkeys(path for rule in self.rules for path in rule.paths))


def parsed(said: Sequence[Any]) -> RuleMap:
    """The map from what the settings say."""
    rules: list[Rule] = []
    skipped: list[str] = []
    for number, entry in enumerate(said[:ENTRIES], start=1):
        found = _rule(number, entry)
        if isinstance(found, Rule):
            rules.append(found)
        else:
            skipped.append(f"entry {number} of the reactor map is left out: {found}")
    if len(said) > ENTRIES:
        skipped.append(f"the reactor map has {len(said)} entries; those after {ENTRIES} are left out")
    return RuleMap(tuple(rules), tuple(skipped))


def parsed_text(text: str, where: str) -> RuleMap:
    """The map from a YAML file: the list, or the list under ``reactor:``, with ``reactor_throttle:`` beside it or not.

    What is wrong with it is named in the map.
    """
    try:
        said = render_yaml.read(text, map_names)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        return RuleMap(skipped=(f"{where}{line}: {error.problem or error.context}",))
    except (yaml.YAMLError, render_yaml.TooLarge, ValueError, TypeError, RecursionError) as error:
        return RuleMap(skipped=(f"{where}: {error}",))
    throttles: dict[str, Throttle] = {}
    wrong: tuple[str, ...] = ()
    if isinstance(said, dict) and {KEY} <= said.keys() <= {KEY, THROTTLE}:
        try:
            throttles = msgspec.convert(said.get(THROTTLE) or {}, dict[str, Throttle], str_keys=True)
        except msgspec.ValidationError as error:
            wrong = (f"{where}: {THROTTLE}: {error}; none of it counts",)
        said = said[KEY]
    if said is None:
        return RuleMap(skipped=wrong, throttles=throttles)
    if not isinstance(said, list):
        return RuleMap(skipped=(f"{where}: it holds no list of rules",))
    found = parsed(said)
    return replace(found, skipped=(*found.skipped, *wrong), throttles=throttles)


def _rule(number: int, entry: Any) -> Rule | str:
    """The rule, or what is wrong with the entry."""
    if not isinstance(entry, dict):
        return "it is no mapping of a tag glob to paths"
    if len(entry) != 1:
        return f"it has {len(entry)} keys, and has to have one, its tag glob"
    ((glob, value),) = entry.items()
    glob = str(glob)
    if not 0 < len(glob) <= GLOB_CHARACTERS:
        return f"its tag glob has {len(glob)} characters, at most {GLOB_CHARACTERS}"
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(path, str) and path for path in listed):
        return f"the value of {glob!r} is neither a path nor a list of paths"
    if len(listed) > PATHS or any(len(path) > PATH_CHARACTERS for path in listed):
        return f"{glob!r} has more than {PATHS} paths, or one of more than {PATH_CHARACTERS} characters"
    return Rule(number, glob, tuple(listed))
