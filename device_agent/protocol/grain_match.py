"""Whether grains satisfy ``key:subkey:glob``, or a regular expression: Salt's ``subdict_match`` over plain values.

Every way to cut the expression into a path and a value is tried, the longest path first, so both ``os:Debian`` and a
value that holds the delimiter match. A list matches by any item, or by a number or a key in the path; a mapping matches
by ``*`` or by one of its keys; ``*`` as a key stands for any key. Keys of the path keep their case, values do not.
Source: https://docs.saltproject.io/en/latest/topics/targeting/grains.html and ``salt.utils.data``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from device_agent.protocol.globs import compile_glob

_MISSING = object()

Test = Callable[[str], bool]


def _glob_of_a_value(pattern: str) -> Test:
    return compile_glob(pattern.lower())


def _never(_text: str) -> bool:
    """All of an expression is never a value."""
    return False


def compile_grain(
    expression: str, delimiter: str = ":", compile_value: Callable[[str], Test] = _glob_of_a_value
) -> Callable[[Mapping[str, Any]], bool]:
    """A test for one expression, which must hold the delimiter at least once. The test never raises.

    Any end of the expression may be its value; ``compile_value`` makes a test of one, for texts in small letters.
    """
    parts = expression.split(delimiter)
    values = [_never, *(compile_value(delimiter.join(parts[at:])) for at in range(1, len(parts)))]
    if len(parts) == 2 and parts[0] != "*":
        return _compile_pair(parts[0], parts, values)
    names = [delimiter.join(parts[at:]) for at in range(len(parts))]
    return lambda grains: _Walk(parts, names, values).below(grains if isinstance(grains, dict) else dict(grains), 0)


def _compile_pair(
    key: str, parts: list[str], values: list[Callable[[str], bool]]
) -> Callable[[Mapping[str, Any]], bool]:
    """The usual ``key:value``, without the walk unless the grain is a list or a mapping."""
    value_matches = values[1]

    def matches(grains: Mapping[str, Any]) -> bool:
        value = grains.get(key, _MISSING)
        if value is _MISSING:
            return False
        if type(value) is str:
            return value_matches(value.lower())
        return _Walk(parts, parts, values).at(value, 1)

    return matches


class _Walk:
    """One walk through the grains of one device.

    ``parts`` is the expression cut at the delimiter; ``names[i]`` and ``values[i]`` are all of it from part ``i`` on,
    as a key and as a glob. What was tried without success is remembered, or an expression full of ``*`` would try the
    same place exponentially often.
    """

    def __init__(self, parts: list[str], names: list[str], values: list[Callable[[str], bool]]) -> None:
        self._parts = parts
        self._names = names
        self._values = values
        self._failed: set[tuple[int, int]] = set()

    def below(self, node: object, start: int) -> bool:
        """Whether parts ``start`` and on are a path from this mapping and a value at its end."""
        for end in range(len(self._parts) - 1, start, -1):
            if end == start + 1 and self._parts[start] == "*":
                if isinstance(node, dict) and node and self._in_mapping(node, start):
                    return True
                continue
            found = _follow(node, self._parts[start:end])
            if found is not _MISSING and self.at(found, end):
                return True
        return False

    def at(self, node: object, start: int) -> bool:
        """Whether parts ``start`` and on match what a path led to."""
        if isinstance(node, dict):
            return bool(node) and self._in_mapping(node, start)
        if isinstance(node, (list, tuple)):
            return any(
                (isinstance(item, dict) and self._in_mapping(item, start)) or self._values[start](_text(item))
                for item in node
            )
        return self._values[start](_text(node))

    def _in_mapping(self, node: dict[Any, Any], start: int) -> bool:
        if (id(node), start) in self._failed:
            return False
        if self._search(node, start):
            return True
        self._failed.add((id(node), start))
        return False

    def _search(self, node: dict[Any, Any], start: int) -> bool:
        any_key = self._parts[start] == "*" and start + 1 < len(self._parts)
        rest = start + 1 if any_key else start
        if self._names[rest] == "*" or self._names[rest] in node or self.below(node, rest):
            return True
        if any(self._values[rest](_text(key)) for key in node):
            return True
        return any_key and any(self._under_any_key(inner, rest) for inner in node.values())

    def _under_any_key(self, inner: object, start: int) -> bool:
        if isinstance(inner, dict):
            return self._in_mapping(inner, start)
        if isinstance(inner, list):
            return any(self._values[start](_text(item)) for item in inner)
        return self._values[start](_text(inner))


def value_at(grains: Mapping[str, Any], expression: str, delimiter: str = ":") -> object:
    """What the longest path in an expression leads to, for people; None for no path, as with ``*`` for a key."""
    parts = expression.split(delimiter)
    for end in range(len(parts) - 1, 0, -1):
        found = _follow(dict(grains), parts[:end])
        if found is not _MISSING:
            return found
    return None


def _follow(node: object, path: list[str]) -> object:
    """What a path of keys leads to; in a list a number is a place, and a key is looked for in its mappings."""
    for key in path:
        if isinstance(node, dict):
            node = node.get(key, _MISSING)
        elif isinstance(node, list):
            node = _follow_list(node, key)
        else:
            return _MISSING
        if node is _MISSING:
            return _MISSING
    return node


def _follow_list(items: list[Any], key: str) -> object:
    try:
        place = int(key)
    except ValueError:
        return next((item[key] for item in items if isinstance(item, dict) and key in item), _MISSING)
    return items[place] if -len(items) <= place < len(items) else _MISSING


def _text(value: object) -> str:
    """A grain as the text a glob is held against, lower case as in Salt; a foreign object has none."""
    if isinstance(value, str):
        return value.lower()
    if value is None or isinstance(value, (bool, int, float, bytes, list, dict)):
        try:
            return str(value).lower()
        except (ValueError, RecursionError):
            # A number of more than 4,300 digits, or nesting past the interpreter's limit: neither comes from a message.
            return ""
    return ""
