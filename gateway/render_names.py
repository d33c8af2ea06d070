"""Keep the names and targets of a YAML document as they are typed.

YAML 1.1 reads ``00427`` as the number 427, ``52:54:00:42:25:43`` as a number to the base 60, ``on`` as a boolean and
``1_0`` as 10. As a text such a number names another device. Each function here takes the root of a composed document
and turns the scalars that are names into texts, before any value is made of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

Keep = Callable[[Node], None]
Names = Literal["", "top", "steps"]
"""A top file, an orchestration, or a file without names."""

_TAG: Final = "tag:yaml.org,2002:"
_STR: Final = f"{_TAG}str"
_NULL: Final = f"{_TAG}null"
_MERGE: Final = f"{_TAG}merge"
_NAME: Final = re.compile(r"0[0-9]+|[0-9]+(:[0-9]+)+")
_NUMBERS: Final = frozenset({f"{_TAG}int", f"{_TAG}float"})
_GUESSED: Final = _NUMBERS | {f"{_TAG}bool", f"{_TAG}timestamp"}

TARGETS: Final = frozenset({"tgt", "match", "fail_minions", "allow_tgt", "target"})
"""Keys of reactor files, orchestrations and settings whose values name devices."""

IDS: Final = "id_list"
"""A key of ``salt.wait_for_event``: names of devices, or other values of an event, which may be numbers."""

NAMED_ENTRIES: Final = frozenset({"schedule", "beacons", "file_roots", "pillar_roots"})
"""Keys of Salt's settings whose entries have names that the site chose."""

ROSTER_VALUES: Final = frozenset({"port", "sudo", "timeout"})


def reaction_names(root: Node) -> None:
    """Keep the ids of a reactor file, and its targets."""
    for key, _ in _pairs(root):
        _keep(key, key=True)
    _keep_targets(root)


def step_names(root: Node) -> None:
    """Keep the targets of an orchestration, and the files that it includes."""
    _keep_includes(root)
    _keep_targets(root)


def state_names(root: Node) -> None:
    """Keep the files that a pillar file includes."""
    _keep_includes(root)


def top_names(root: Node) -> None:
    """Keep the environments of a top file, its targets, and the files that it names."""
    _keep_includes(root)
    for env, targets in _pairs(root):
        _keep(env, key=True)
        for target, files in _pairs(targets):
            _keep(target, key=True)
            for file in files.value if isinstance(files, SequenceNode) else []:
                _keep(file)


def roster_names(root: Node) -> None:
    """Keep the names of a roster of salt-ssh, and all texts of its entries."""
    for name, entry in _pairs(root):
        _keep(name, key=True)
        _keep(entry)
        for field, value in _pairs(entry):
            if field.value not in ROSTER_VALUES:
                _keep(value)


def setting_names(root: Node) -> None:
    """Keep the names of devices and their logins in a settings file of Salt."""
    for key, value in _pairs(root):
        if key.value == "id":
            _keep(value)
        elif key.value == "nodegroups":
            _keep_below(value)
        elif key.value == "reactor":
            _keep_tags(value)
        elif key.value in NAMED_ENTRIES:
            for name, _ in _pairs(value):
                _keep(name, key=True)
        elif key.value == "proxy":
            roster_names(MappingNode(f"{_TAG}map", [(key, value)]))
            for field, inner in _pairs(value):
                if field.value == "ids":
                    _keep_below(inner)
    _keep_targets(root)


def map_names(root: Node) -> None:
    """Keep the tags of a reactor map, and what its throttles are for and count by."""
    _keep_tags(root)
    for key, value in _pairs(root):
        if key.value == "reactor":
            _keep_tags(value)
        elif key.value == "reactor_throttle":
            for name, throttle in _pairs(value):
                _keep(name, key=True)
                for field, inner in _pairs(throttle):
                    if field.value == "by":
                        _keep_below(inner)


def rewritten(root: Node) -> Iterator[tuple[int, str]]:
    """Line and text of each value that looks like a name, and that YAML reads as another number: ``00427``."""
    for node, is_key in _walk(root):
        if isinstance(node, ScalarNode) and node.tag == f"{_TAG}int" and not is_key and _NAME.fullmatch(node.value):
            yield node.start_mark.line + 1, node.value


def _keep(node: Node, *, key: bool = False) -> None:
    """Turn a plain scalar into a text. ``null`` is a name as a key alone: as a value it says that there is none."""
    # libyaml gives a plain scalar an empty style, PyYAML gives it none.
    if not isinstance(node, ScalarNode) or node.style:
        return
    if node.tag in _GUESSED or (key and node.tag == _NULL and node.value):
        node.tag = _STR


def _keep_tags(rules: Node) -> None:
    for rule in rules.value if isinstance(rules, SequenceNode) else []:
        for tag, _ in _pairs(rule):
            _keep(tag, key=True)


def _keep_below(root: Node) -> None:
    for node, is_key in _walk(root):
        _keep(node, key=is_key)


def _keep_targets(root: Node) -> None:
    for node, _ in _walk(root):
        if not isinstance(node, MappingNode):
            continue
        for key, value in node.value:
            if key.value == IDS:
                for each in value.value if isinstance(value, SequenceNode) else []:
                    if _is_rewritten(each):
                        _keep(each)
            elif isinstance(key, ScalarNode) and key.value in TARGETS:
                _keep_below(value)


def _keep_includes(root: Node) -> None:
    for key, value in _pairs(root):
        if key.value == "include":
            for each in value.value if isinstance(value, SequenceNode) else []:
                _keep(each)
                for name, _ in _pairs(each):
                    _keep(name, key=True)


def _is_rewritten(node: Node) -> bool:
    """Whether the number that YAML reads would be written otherwise."""
    if not isinstance(node, ScalarNode) or node.tag not in _NUMBERS:
        return True
    try:
        number: float = int(node.value) if node.tag == f"{_TAG}int" else float(node.value)
    except ValueError:
        return True
    return str(number) != str(node.value)


def _pairs(node: Node) -> Iterator[tuple[Node, Node]]:
    """The keys and values of a mapping, with those of the mappings that ``<<`` names; none for another node."""
    waiting, seen = [node], set[int]()
    while waiting:
        at = waiting.pop()
        if id(at) in seen or not isinstance(at, MappingNode):
            continue
        seen.add(id(at))
        for key, value in at.value:
            if key.tag == _MERGE:
                waiting += value.value if isinstance(value, SequenceNode) else [value]
            else:
                yield key, value


def _walk(root: Node) -> Iterator[tuple[Node, bool]]:
    """Each node once, and whether it is a key."""
    waiting, seen = [(root, False)], set[int]()
    while waiting:
        node, is_key = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, is_key
        if isinstance(node, MappingNode):
            for key, value in node.value:
                waiting += [(key, True), (value, False)]
        elif isinstance(node, SequenceNode):
            waiting += [(each, False) for each in node.value]


KEEPERS: Final[dict[Names, Keep | None]] = {"": None, "top": top_names, "steps": step_names}
