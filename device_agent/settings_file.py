"""One YAML file as a tree in which every value knows the line it stands on.

YAML's own guesses about what a word means are kept beside the word, so that the table of settings decides and not YAML
1.1, for which ``no`` is false, ``007`` is seven and ``1:30`` is ninety.
"""

from __future__ import annotations

import grp
import os
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from device_agent.errors import ConfigInvalid
from device_agent.start_errors import start_error
from device_agent.utf8_text import NotUtf8, utf8_text

FILE_BYTES = 1024 * 1024
NODES = 100_000
"""Values in one file after its aliases are followed, so that a few aliases of aliases cannot fill the memory."""

DEPTH = 32
SCALAR_KINDS = frozenset({"str", "int", "float", "bool", "null", "timestamp", "value", "merge"})
_TAG_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A word or a text. ``kind`` is what YAML takes it for; in quotes (not ``plain``) always ``str``."""

    place: Place
    kind: str
    text: str
    plain: bool = True

    @property
    def empty(self) -> bool:
        """Whether nothing at all was written after the key."""
        return self.kind == "null" and not self.text


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    place: Place
    items: list[Tree]


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping; ``places`` is where each key stands."""

    place: Place
    entries: dict[str, Tree] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)


Tree = Scalar | Items | Section


def read_file(file: Path) -> Section:
    """The mapping that a file is. Raises ``ConfigInvalid`` with file, line and column."""
    return read_text(_text(file), file)


def read_text(text: str, file: Path) -> Section:
    """The mapping that the text of a file is. Raises ``ConfigInvalid`` with file, line and column."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        tab = "\\t" in str(error.problem)
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigInvalid(
            f"not YAML: {problem}",
            where=f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file),
            found=f"{_near(text, mark)!r}" if mark else None,
            hint="indent with spaces, YAML does not allow tabs there" if tab else _edit(file, mark),
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigInvalid(
            "not YAML: a character that is not text", where=f"{file}:{line}", found=f"U+{ord(text[error.position]):04X}"
        ) from None
    except (ValueError, OverflowError, RecursionError) as error:
        # PyYAML lets escapes past Unicode's end and nesting past the interpreter's limit through as these.
        raise ConfigInvalid(f"not YAML: {type(error).__name__}: {error}", where=str(file)) from None
    top = Scalar(Place(file, 1), "null", "") if node is None else _Growing(file).grow(node)
    if isinstance(top, Scalar) and top.empty:
        return Section(top.place)
    if not isinstance(top, Section):
        raise ConfigInvalid(
            "a settings file is a mapping", where=str(top.place), found=shown(top), allowed="lines such as key: value"
        )
    return top


def shown(tree: Tree) -> str:
    """What was found, for people."""
    if isinstance(tree, Section):
        return f"a section with {', '.join(list(tree.entries)[:5]) or 'nothing in it'}"
    if isinstance(tree, Items):
        return f"a list of {len(tree.items)}"
    if tree.kind == "null":
        return f"{tree.text} (nothing)" if tree.text else "nothing"
    text = tree.text if len(tree.text) <= 80 else tree.text[:80] + "…"
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false", "timestamp": "a date"}
    return f"{text} (YAML reads {kinds[tree.kind]})" if tree.kind in kinds else repr(text)


def _edit(file: Path, mark: yaml.Mark | None) -> str:
    """How to mend what is wrong there."""
    return f"sudoedit {file}" + (f", line {mark.line + 1}" if mark else "")


def _near(text: str, mark: yaml.Mark) -> str:
    """The next few characters: enough to find the spot, too few to show a whole secret."""
    return text[mark.index : mark.index + 12].partition("\n")[0] if mark.index < len(text) else "<end of file>"


def made_readable(file: Path) -> str:
    """What lets this process read a file that may have secrets in it: its group, and not everybody."""
    return f"sudo chgrp {_group()} {file}; sudo chmod g+r {file}; ls -ld {file.parent} shows who may look there"


def _group() -> str:
    """The group of this process, by its number where it has no name."""
    try:
        return grp.getgrgid(os.getegid()).gr_name
    except KeyError:
        return str(os.getegid())


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            body = opened.read(FILE_BYTES + 1)
    except FileNotFoundError as error:
        what = "there is no such settings file"
        raise start_error(error, what, file, where=str(file), hint=f"ls -l {file.parent}") from None
    except PermissionError as error:
        raise ConfigInvalid(
            f"the settings file cannot be read: {error.strerror}", where=str(file), hint=made_readable(file)
        ) from None
    except OSError as error:
        what = f"the settings file cannot be read: {error.strerror}"
        raise start_error(error, what, where=str(file), hint=f"ls -ld {file}") from None
    if len(body) > FILE_BYTES:
        raise ConfigInvalid(
            "the settings file is too large",
            where=str(file),
            found=f"over {FILE_BYTES} bytes",
            allowed=f"{FILE_BYTES} bytes",
        )
    try:
        return utf8_text(body)
    except NotUtf8 as error:
        raise error.of_file(ConfigInvalid, file, "the settings file") from None


class _Growing:
    """From PyYAML's nodes to the tree, within the bounds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._nodes = 0

    def grow(self, node: yaml.Node, depth: int = 0) -> Tree:
        place = self._place(node)
        self._nodes += 1
        if self._nodes > NODES:
            raise ConfigInvalid(
                "too many values once aliases are followed", where=str(place), allowed=f"at most {NODES}"
            )
        if depth > DEPTH:
            raise ConfigInvalid("values nest too deep", where=str(place), allowed=f"at most {DEPTH} deep")
        if isinstance(node, yaml.MappingNode):
            return self._section(node, depth)
        if isinstance(node, yaml.SequenceNode):
            return Items(place, [self.grow(inner, depth + 1) for inner in node.value])
        assert isinstance(node, yaml.ScalarNode)
        kind = node.tag.removeprefix(_TAG_PREFIX)
        if kind not in SCALAR_KINDS:
            raise ConfigInvalid(
                "tags have no meaning here", where=str(place), found=node.tag[:80], hint="leave out the tag"
            )
        return Scalar(place, "str" if kind in {"value", "merge"} else kind, node.value, plain=node.style is None)

    def _section(self, node: yaml.MappingNode, depth: int) -> Section:
        section = Section(self._place(node))
        merged: list[Section] = []
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if key_node.tag == f"{_TAG_PREFIX}merge":
                merged += self._merged(value_node, depth)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigInvalid("a key must be a word", where=str(place), found="a list or a mapping as a key")
            key = key_node.value
            if key in section.entries:
                raise ConfigInvalid(
                    f"the key {key[:80]!r} is there twice",
                    where=str(place),
                    found=f"first at line {section.places[key].line}",
                    allowed="each key once",
                    hint=f"put both under one {key[:80]!r}, or remove one",
                )
            section.places[key] = place
            section.entries[key] = self.grow(value_node, depth + 1)
        for other in merged:
            for key, value in other.entries.items():
                if key not in section.entries:
                    section.entries[key] = value
                    section.places[key] = other.places[key]
        return section

    def _merged(self, node: yaml.Node, depth: int) -> list[Section]:
        """What ``<<`` brings in; the key's own entries come first, then the mappings in their order."""
        grown = self.grow(node, depth + 1)
        sections = grown.items if isinstance(grown, Items) else [grown]
        found = [section for section in sections if isinstance(section, Section)]
        if len(found) != len(sections):
            raise ConfigInvalid("<< takes a mapping or a list of mappings", where=str(grown.place), found=shown(grown))
        return found

    def _place(self, node: yaml.Node) -> Place:
        return Place(self._file, node.start_mark.line + 1)
