"""The folders that Salt serves where its settings name none: they complete what refers to ``salt://`` and to pillar."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.salt.import_findings import Finding, Wish
from gateway.salt.import_read import Box

DEFAULTS: Final = {"file_roots": ("salt", "spm/salt"), "pillar_roots": ("pillar", "spm/pillar")}
"""Key -> folders below /srv, in Salt's order."""


def take_default_roots(box: Box, wish: Wish, srv: Path) -> None:
    """Have the gateway serve what the box served without saying so."""
    local = box.value("minion", "file_client") == "local"
    if "master" not in box.said and not local:
        return
    role = "master" if "master" in box.said else "minion"
    for key, names in DEFAULTS.items():
        folders = [str(srv / name) for name in names if (srv / name).is_dir()]
        if not folders or key in box.said[role]:
            continue
        if wish.put(key, {"base": folders}, folders[0]):
            words = "no file of settings names any, and Salt serves these then"
            wish.findings.append(Finding("translated", key, folders[0], words, key))


def file_roots(box: Box, srv: Path | None) -> dict[str, list[str]]:
    """The folders of this machine that the box served, by environment."""
    local = box.value("minion", "file_client") == "local"
    said = box.value("master", "file_roots") or (box.value("minion", "file_roots") if local else None)
    if said is None and srv is not None:
        said = {"base": [str(srv / name) for name in DEFAULTS["file_roots"]]}
    found: dict[str, list[str]] = {}
    for name, folders in said.items() if isinstance(said, Mapping) else ():
        listed = folders if isinstance(folders, list) else [folders]
        found[str(name)] = [each for each in listed if isinstance(each, str) and each.startswith("/")]
    return found
