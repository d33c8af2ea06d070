"""Is there a secret in settings that everybody on the machine may read? The package's own files may be read so."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from device_agent.errors import ConfigInvalid
from device_agent.settings_file import Items, Scalar, Section, Tree, read_file
from gateway.checks.box import Box, user_name
from gateway.checks.finding import Finding
from gateway.secret_names import PLAIN, is_setting, names

NAMED: Final = 4


def look(box: Box) -> list[Finding]:
    """One finding for all files, or none. Nothing of it is mended unasked: the station must still read them."""
    found = {file: keys for file in _files(box.config) if (keys := _secrets(file))}
    if not found:
        return []
    group = user_name(box.owner())
    return [
        Finding(
            check="permissions",
            severity="warning",
            finding="everybody on this machine may read settings with secrets in them: "
            + "; ".join(f"{file} ({', '.join(keys[:NAMED])})" for file, keys in found.items()),
            meaning="who has an account here can use them elsewhere; root and the station are all who need them",
            fix="; ".join(f"sudo chgrp {group} {file} && sudo chmod 640 {file}" for file in found),
            about="secrets",
        )
    ]


def _files(config: Path | None) -> list[Path]:
    """The settings file and its pieces, as far as everybody may read them."""
    if config is None:
        return []
    pieces: list[Path] = []
    # What is not there, or cannot be looked at, says whoever reads it.
    with suppress(OSError):
        pieces = sorted(config.with_name(f"{config.stem}.d").glob("*.yaml"))
    return [file for file in (config, *pieces) if _is_open(file)]


def _is_open(file: Path) -> bool:
    """Whether everybody may read a file: in a folder that others cannot enter nobody of them does."""
    try:
        there = file.resolve(strict=True)
        folders = all(folder.stat().st_mode & stat.S_IXOTH for folder in there.parents)
        return folders and bool(there.stat().st_mode & stat.S_IROTH)
    except (OSError, RuntimeError):
        # Links in a circle are a RuntimeError.
        return False


def _secrets(file: Path) -> list[str]:
    """The keys in a file whose values are secrets."""
    try:
        settings = read_file(file)
        found = (_named(value, key) for key, value in settings.entries.items() if key not in PLAIN)
        return list(dict.fromkeys(name for each in found for name in each))
    except ConfigInvalid:
        # What is wrong with it is said by the check of the settings.
        return []


def _named(tree: Tree, name: str) -> Iterator[str]:
    if isinstance(tree, Section):
        for key, value in tree.entries.items():
            yield from _named(value, f"{name}.{key}" if name else key)
    elif isinstance(tree, Items):
        for item in tree.items:
            yield from _named(item, name)
    elif _is_secret(name, tree):
        yield name


def _is_secret(name: str, value: Scalar) -> bool:
    text = value.text.strip()
    key = name.rpartition(".")[2]
    return is_setting(key) and names(key) and value.kind not in ("null", "bool") and bool(text) and not _is_path(text)


def _is_path(text: str) -> bool:
    """Whether a value only says where the secret is. One in base64 may begin with a slash too, but with no folder."""
    first = text.split("/")[1] if text.startswith("/") else ""
    return bool(first) and first in {entry.name for entry in Path("/").iterdir()}
