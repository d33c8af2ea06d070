"""YAML as Salt reads it, by a safe loader, and how large what was read really is.

A name that is there twice is an error, a time stays a text, and a number may begin with zeros. What is read may name
the same part many times over: it is small in memory and endless when somebody writes it out, so it is measured as if
it were written out before anybody else touches it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

VALUES: Final = 200_000
"""Most values that a document, or a pillar, may have when it is written out."""

BYTES: Final = 8 * 1024 * 1024
DEPTH: Final = 100
DIGITS: Final = 1000
"""Most digits of a number. None of so many is a number on any wire."""

UNCHECKED_CHARACTERS: Final = 4096
"""A shorter text cannot nest so deep that libyaml runs out of stack."""

_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_MERGE: Final = "tag:yaml.org,2002:merge"
_SCALARS: Final = (str, bytes, bytearray, int, float, bool, type(None))


class TooLarge(Exception):
    """What was read, or made of it, is larger than it may be; the text says in which way."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # whichever there is, in C if there is one
    """A safe loader that reads as Salt's does."""

    def construct_mapping(self, node: Node, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose names are there once."""
        if not isinstance(node, MappingNode):
            raise ConstructorError(None, None, f"expected a mapping node, but found {_kind(node)}", node.start_mark)
        self.flatten_mapping(node)
        found: dict[Any, Any] = {}
        for name, value in node.value:
            key = self.construct_object(name, deep=deep)
            try:
                twice = key in found
            except TypeError:
                raise _wrong(node, f"found unacceptable key {name.value}", name) from None
            made = self.construct_object(value, deep=deep)
            if twice:
                raise _wrong(node, f"found conflicting ID '{key}'", name)
            found[key] = made
        return found

    def flatten_mapping(self, node: MappingNode) -> None:
        """Take in what ``<<`` names. What is said here counts before it; two that say the same do not fit."""
        taken: list[tuple[Node, Node]] = []
        kept: list[tuple[Node, Node]] = []
        for name, value in node.value:
            if name.tag == _MERGE:
                taken += self._merged(node, value)
            else:
                if name.tag == "tag:yaml.org,2002:value":
                    name.tag = "tag:yaml.org,2002:str"
                kept.append((name, value))
        here = {_told(name) for name, _ in kept}
        node.value = [*((name, value) for name, value in taken if _told(name) not in here), *kept]

    def _merged(self, node: MappingNode, value: Node) -> list[tuple[Node, Node]]:
        if isinstance(value, MappingNode):
            self.flatten_mapping(value)
            return list(value.value)
        if not isinstance(value, SequenceNode):
            said = f"expected a mapping or list of mappings for merging, but found {_kind(value)}"
            raise _wrong(node, said, value)
        found: list[tuple[Node, Node]] = []
        for each in reversed(value.value):
            if not isinstance(each, MappingNode):
                raise _wrong(node, f"expected a mapping for merging, but found {_kind(each)}", each)
            self.flatten_mapping(each)
            found += each.value
        return found

    def construct_scalar(self, node: Any) -> Any:
        """A number that begins with zeros is no octal one."""
        zeros = isinstance(node, ScalarNode) and node.tag == _INT and node.value.startswith("0")
        if zeros and not node.value.startswith(("0b", "0x")):
            node.value = node.value.lstrip("0") or "0"
        return super().construct_scalar(node)

    def construct_int(self, node: Any) -> Any:
        """A number, or its text where it has more digits than Python reads."""
        return node.value if len(node.value) > DIGITS else self.construct_yaml_int(node)

    def construct_binary(self, node: Any) -> bytes:
        """Bytes, also where the padding is missing."""
        try:
            text = self.construct_scalar(node).encode("ascii")
            return base64.decodebytes(text + b"=" * (-len(text) % 4))
        except (UnicodeEncodeError, binascii.Error) as error:
            said = f"failed to decode base64 data: {error}"
            raise ConstructorError(None, None, said, node.start_mark) from None


def _fitting(construct: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The constructor of a tag, with an error of YAML for a text that does not fit it, such as ``!!bool maybe``."""

    def constructed(loader: Any, node: Node) -> Any:
        try:
            return construct(loader, node)
        except (ValueError, KeyError, IndexError, OverflowError):
            what = f"found {str(node.value)[:80]!r}, which is no {node.tag.rpartition(':')[2]}"
            raise ConstructorError(None, None, what, node.start_mark) from None

    return constructed


construct_integer: Final = _fitting(Loader.construct_yaml_int)
construct_float: Final = _fitting(Loader.construct_yaml_float)

Loader.add_constructor("tag:yaml.org,2002:bool", _fitting(Loader.construct_yaml_bool))
Loader.add_constructor(_INT, _fitting(Loader.construct_int))
Loader.add_constructor(_FLOAT, construct_float)
Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_scalar)
Loader.add_constructor("tag:yaml.org,2002:binary", Loader.construct_binary)


def _kind(node: Node) -> str:
    return "mapping" if isinstance(node, MappingNode) else "sequence" if isinstance(node, SequenceNode) else "scalar"


def _told(name: Node) -> Any:
    return name.value if isinstance(name, ScalarNode) else id(name)


def _wrong(node: Node, said: str, at: Node) -> ConstructorError:
    return ConstructorError("while constructing a mapping", node.start_mark, said, at.start_mark)


def read(text: str, keep: Callable[[Node], None] | None = None, reader: type[Loader] = Loader) -> Any:
    """Read the document in a text; ``keep`` may change its nodes first, as those of ``render_names`` do.

    Raises:
        yaml.YAMLError: The text is not YAML.
        TooLarge: The document is too large when it is written out.
    """
    if len(text) > UNCHECKED_CHARACTERS:
        _check_depth(yaml.parse(text, Loader=reader))
    loader = reader(text)
    try:
        root = loader.get_single_node()
        if root is not None and keep is not None:
            keep(root)
        found = None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()
    check(found)
    return found


def _check_depth(events: Iterable[yaml.Event]) -> None:
    """Raise ``TooLarge`` for deep nesting: libyaml composes it on the stack of C, and 30,000 levels end the process."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH:
            raise TooLarge(f"it is nested more than {DEPTH} deep")


def read_json_document(text: str) -> Any:
    """Read JSON, with a first line ``#!…`` or without; nothing but blanks is None.

    Raises:
        json.JSONDecodeError: The text is not JSON; the line is that of the text.
        TooLarge: The document is too large.
    """
    if text.startswith("#!"):
        # The line stays, so that the lines of errors are those of the file.
        text = "\n" + text.partition("\n")[2]
    found = json.loads(text) if text.strip() else None
    check(found)
    return found


def check(value: Any) -> None:
    """Raise ``TooLarge`` for what is endless, deep or large when it is written out."""
    values, size, _ = _measured(value, {}, set(), 0)
    if values > VALUES:
        raise TooLarge(f"it has more than {VALUES} values when it is written out")
    if size > BYTES:
        raise TooLarge(f"it has more than {BYTES} bytes when it is written out")


def _measured(value: Any, known: dict[int, tuple[int, int, Any]], above: set[int], depth: int) -> tuple[int, int, Any]:
    """Values and bytes. What is named often is measured once; ``known`` holds it so that no other gets its number."""
    if isinstance(value, _SCALARS):
        return 1, (len(value) if isinstance(value, (str, bytes, bytearray)) else 9), None
    if id(value) in known:
        return known[id(value)]
    if id(value) in above:
        raise TooLarge("a part of it contains itself")
    if depth >= DEPTH:
        raise TooLarge(f"it is nested more than {DEPTH} deep")
    above.add(id(value))
    values = size = 1
    if isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)
    else:
        inner = []
    for each in inner:
        more, larger, _ = _measured(each, known, above, depth + 1)
        values, size = values + more, size + larger
    above.discard(id(value))
    known[id(value)] = (values, size, value)
    return known[id(value)]
