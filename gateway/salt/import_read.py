"""Reads what a box has of Salt's settings: each file of a role, what it includes, and each key with its line.

Files are read as Salt reads them: the file of a role, then its folder in the order of the names, then what it includes.
A file that is not YAML is named with its line, and the others are read all the same.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from device_agent.errors import ConfigInvalid
from device_agent.settings_file import FILE_BYTES, Items, Scalar, Section, Tree, read_text
from device_agent.utf8_text import NotUtf8, utf8_text
from gateway import render_yaml
from gateway.render_names import Keep, setting_names
from gateway.salt.import_findings import Finding, Said
from gateway.salt.import_functions import OwnNames

ROLES: Final = ("master", "proxy", "minion")
"""Best first: what runs the site goes before what serves the box itself."""

FILES: Final = 1000
INCLUDES: Final = ("default_include", "include")
PER_ENTRY: Final = frozenset({"beacons", "engines", "nodegroups", "schedule", "ssh_list_nodegroups"})
"""Keys whose entries get a verdict each."""


@dataclass
class Box:
    """What there is of Salt's settings on a box."""

    folder: Path
    said: dict[str, dict[str, Said]] = field(default_factory=dict)
    """Role -> key -> what counts."""

    findings: list[Finding] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    own: OwnNames = field(default_factory=OwnNames)
    """Code of the site's own, which settings may call."""

    def value(self, role: str, key: str, default: Any = None) -> Any:
        """What a role says of a key."""
        found = self.said.get(role, {}).get(key)
        return default if found is None else found.value


def read_box(folder: Path) -> Box:
    """All settings below a folder such as /etc/salt."""
    box = Box(folder)
    for role in ROLES:
        main = folder / role
        reading = _Reading(box, role)
        known = reading.main(main) if main.is_file() else reading.group(folder, [f"{role}.d/*.conf"])
        box.files += sorted(reading.done)
        if known:
            box.said[role] = known
    return box


@dataclass
class _Reading:
    """The files of one role, put together as Salt does (``include_config`` in its ``config/__init__.py``).

    What a file includes counts before what it says itself, key by key. Files that one list of globs names are joined:
    mappings and lists of the same key add up, and of anything else the last counts.
    """

    box: Box
    role: str
    done: set[Path] = field(default_factory=set)
    full: bool = False

    def main(self, path: Path) -> dict[str, Said]:
        """The file of the role, with its folder or what it names in the place of that, and what it includes."""
        found = self._file(path)
        folder = texts(found["default_include"].value) if "default_include" in found else [f"{self.role}.d/*.conf"]
        included = texts(found["include"].value) if "include" in found else []
        for globs in (folder, included):
            self._replace(found, self.group(path.parent, globs))
        return found

    def group(self, folder: Path, globs: list[str]) -> dict[str, Said]:
        """The files that these globs name, joined; they are relative to the file that includes them."""
        found: dict[str, Said] = {}
        for piece in (piece for pattern in globs for piece in pieces(folder, pattern)):
            said = self._file(piece)
            if "include" in said:
                self._replace(said, self.group(piece.parent, texts(said["include"].value)))
            for key, each in said.items():
                found[key] = self._joined(found[key], each) if key in found else each
        return found

    def _file(self, path: Path) -> dict[str, Said]:
        if path in self.done:
            return {}
        if len(self.done) >= FILES:
            if not self.full:
                self.full = True
                words = f"a role has more than {FILES} files; this one and those after it were not read"
                self.box.findings.append(Finding("not carried", path.name, str(path), words))
            return {}
        self.done.add(path)
        return {said.key: said for said in keys_of(self.box, self.role, path)}

    def _replace(self, found: dict[str, Said], included: dict[str, Said]) -> None:
        for key, said in included.items():
            if key in found:
                self._again(key, found[key].where, said.where)
            found[key] = said

    def _joined(self, first: Said, last: Said) -> Said:
        if isinstance(first.value, dict) and isinstance(last.value, dict):
            for name in first.lines.keys() & last.lines.keys():
                if last.key in PER_ENTRY:
                    self._again(f"{last.key}.{name}", first.lines[name], last.lines[name])
        elif not (isinstance(first.value, list) and isinstance(last.value, list)):
            self._again(last.key, first.where, last.where)
            return last
        if last.key not in PER_ENTRY:
            words = f"it is joined with {last.where}, as Salt joins what it includes"
            self.box.findings.append(Finding("translated", last.key, first.where, words))
        value = joined(first.value, last.value, deep=last.key != "schedule")
        return replace(last, value=value, lines={**first.lines, **last.lines}, tree=_both(first.tree, last.tree))

    def _again(self, what: str, first: str, last: str) -> None:
        words = f"{last} says it again, and what is said last counts"
        self.box.findings.append(Finding("no meaning", what, first, words))


def joined(first: Any, last: Any, *, deep: bool = True) -> Any:
    """Two values of a key as Salt joins them (``dictupdate.update`` with ``merge_lists``)."""
    if isinstance(first, dict) and isinstance(last, dict):
        both = {key: joined(first[key], last[key]) if deep else last[key] for key in first if key in last}
        return {**first, **last, **both}
    if isinstance(first, list) and isinstance(last, list):
        return [*first, *(each for each in last if each not in first)]
    return last


def _both(first: Tree | None, last: Tree | None) -> Tree | None:
    """Where the parts of two joined mappings are written."""
    if isinstance(first, Section) and isinstance(last, Section):
        return Section(last.place, {**first.entries, **last.entries}, {**first.places, **last.places})
    return None


def read_mapping(path: Path, keep: Keep) -> tuple[dict[str, Any], Section]:
    """A file of YAML that is a mapping: its values as Salt reads them, with names as ``keep`` has them, and its lines.

    Raises ``ConfigInvalid`` with file, line and column, and with no more than twelve characters of the file.
    """
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES + 1)
        text = utf8_text(body)
    except OSError as error:
        raise ConfigInvalid(f"the file cannot be read: {error.strerror}", where=str(path)) from None
    except NotUtf8 as error:
        raise error.of_file(ConfigInvalid, path) from None
    if len(body) > FILE_BYTES:
        raise ConfigInvalid("the file is too large", where=str(path), allowed=f"{FILE_BYTES:,} bytes")
    tree = read_text(text, path)
    try:
        values = render_yaml.read(text, keep)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigInvalid("not YAML", where=f"{path}:{mark.line + 1}" if mark else str(path)) from None
    except (yaml.YAMLError, render_yaml.TooLarge) as error:
        raise ConfigInvalid(f"not YAML: {type(error).__name__}", where=str(path)) from None
    return {str(key): value for key, value in (values or {}).items()}, tree


def keys_of(box: Box, role: str, path: Path) -> Iterator[Said]:
    """Each key at the top of a file. A file that cannot be read is a finding of the box."""
    try:
        values, tree = read_mapping(path, setting_names)
    except ConfigInvalid as error:
        words = f"{error.what}; nothing of this file was taken"
        box.findings.append(Finding("wrong", path.name, error.where or str(path), words))
        return
    for key, value in values.items():
        inner = tree.entries.get(key)
        yield Said(role, key, value, str(tree.places.get(key, tree.place)), _lines(inner), inner)


def _lines(tree: Tree | None) -> dict[str, str]:
    """Where each entry of a mapping, or of a list of names and of mappings of one, stands."""
    if isinstance(tree, Section):
        return {name: str(place) for name, place in tree.places.items()}
    found: dict[str, str] = {}
    for each in tree.items if isinstance(tree, Items) else []:
        if isinstance(each, Scalar):
            found.setdefault(each.text, str(each.place))
        elif isinstance(each, Section) and len(each.places) == 1:
            ((name, place),) = each.places.items()
            found.setdefault(name, str(place))
    return found


def pieces(folder: Path, pattern: str) -> list[Path]:
    """The files that a glob names, by name. As in Salt a ``*`` names none that begins with a dot."""
    whole = os.path.join(folder, os.path.expanduser(pattern))  # noqa: PTH111, PTH118 - a pattern, and no path
    try:
        found = sorted(glob.glob(whole))  # noqa: PTH207 - a pattern from the top of the file system
    except (OSError, ValueError, re.error):
        return []
    return [path for path in map(Path, found[: FILES + 1]) if path.is_file()]


def typed(value: Any, tree: Tree | None) -> Any:
    """A value in which each plain word stands as it is written: a password ``1.50`` is no number.

    Words that mean true, false or nothing keep that meaning.
    """
    if isinstance(tree, Scalar):
        return tree.text if tree.kind not in ("bool", "null") else value
    if isinstance(tree, Section) and isinstance(value, dict):
        names = {str(_scalar(name)): name for name in tree.entries} | {name: name for name in tree.entries}
        found = {names.get(str(key), str(key)): each for key, each in value.items()}
        return {name: typed(each, tree.entries.get(name)) for name, each in found.items()}
    if isinstance(tree, Items) and isinstance(value, list) and len(tree.items) == len(value):
        return [typed(each, inner) for each, inner in zip(value, tree.items, strict=True)]
    return value


def _scalar(text: str) -> Any:
    try:
        return render_yaml.read(text)
    except (yaml.YAMLError, render_yaml.TooLarge, ValueError):
        return text


def texts(value: Any) -> list[str]:
    """One text or a list of them, as a list."""
    return [value] if isinstance(value, str) else [each for each in value or [] if isinstance(each, str)]
