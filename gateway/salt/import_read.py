"""Reads what a box has of Salt's settings: each file of a role, what it includes, and each key with its line.

Files are read as Salt reads them: the file of a role, then its folder in the order of the names; a key that is said
later counts instead. A file that is not YAML is named with its line, and the others are read all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from device_agent.errors import ConfigInvalid
from device_agent.settings_file import FILE_BYTES, Section, read_text
from gateway import render_yaml
from gateway.render_names import Keep, setting_names
from gateway.salt.import_findings import Finding, Said

ROLES: Final = ("master", "proxy", "minion")
"""Best first: what runs the site goes before what serves the box itself."""

FILES: Final = 1000


@dataclass
class Box:
    """What there is of Salt's settings on a box."""

    folder: Path
    said: dict[str, dict[str, Said]] = field(default_factory=dict)
    """Role -> key -> what counts."""

    findings: list[Finding] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def value(self, role: str, key: str, default: Any = None) -> Any:
        """What a role says of a key."""
        found = self.said.get(role, {}).get(key)
        return default if found is None else found.value


def read_box(folder: Path) -> Box:
    """All settings below a folder such as /etc/salt."""
    box = Box(folder)
    for role in ROLES:
        waiting = [path for path in (folder / role,) if path.is_file()] + _pieces(folder, f"{role}.d/*.conf")
        known: dict[str, Said] = {}
        done: set[Path] = set()
        while waiting and len(done) < FILES:
            path = waiting.pop(0)
            if path in done:
                continue
            done.add(path)
            for said in _keys(box, role, path):
                if said.key == "include" or (said.key == "default_include" and said.value != f"{role}.d/*.conf"):
                    waiting += [piece for glob in _texts(said.value) for piece in _pieces(folder, glob)]
                if said.key in known:
                    words = f"{said.where} says it again, and what is said last counts"
                    box.findings.append(Finding("no meaning", said.key, known[said.key].where, words))
                known[said.key] = said
        box.files += sorted(done)
        if known:
            box.said[role] = known
    return box


def read_mapping(path: Path, keep: Keep) -> tuple[dict[str, Any], Section]:
    """A file of YAML that is a mapping: its values as Salt reads them, with names as ``keep`` has them, and its lines.

    Raises ``ConfigInvalid`` with file, line and column, and with no more than twelve characters of the file.
    """
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES + 1)
        text = body.decode("utf-8-sig")
    except OSError as error:
        raise ConfigInvalid(f"the file cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigInvalid("the file is not UTF-8", where=f"{path}:{line}") from None
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


def _keys(box: Box, role: str, path: Path) -> Iterator[Said]:
    try:
        values, tree = read_mapping(path, setting_names)
    except ConfigInvalid as error:
        words = f"{error.what}; nothing of this file was taken"
        box.findings.append(Finding("wrong", path.name, error.where or str(path), words))
        return
    for key, value in values.items():
        inner = tree.entries.get(key)
        lines = {name: str(place) for name, place in inner.places.items()} if isinstance(inner, Section) else {}
        yield Said(role, key, value, str(tree.places.get(key, tree.place)), lines)


def _pieces(folder: Path, glob: str) -> list[Path]:
    place = Path(glob)
    root, pattern = (Path("/"), str(place.relative_to("/"))) if place.is_absolute() else (folder, glob)
    try:
        return sorted(path for path in root.glob(pattern) if path.is_file())[:FILES]
    except (OSError, ValueError, NotImplementedError):
        return []


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [each for each in value or [] if isinstance(each, str)]
