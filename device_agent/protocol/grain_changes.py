"""What changed between two reports of a device's grains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PASSING = frozenset({"path", "systempath", "shell", "uid", "gid", "username", "groupname", "pythonversion"})
"""Grains that say how a machine was asked rather than what it is: a change of these alone is no change of the device,
for a device with two links tells others over each."""

VALUE_CHARACTERS = 1024
"""A longer value is named as changed and not shown."""


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What changed, by grain: ``{"old": …, "new": …}``, without the side on which there was none."""
    changed = {}
    for name in sorted(old.keys() | new.keys()):
        if name in PASSING or (name in old and name in new and old[name] == new[name]):
            continue
        sides = (("old", old), ("new", new))
        changed[name] = {side: _short(grains[name]) for side, grains in sides if name in grains}
    return changed


def _short(value: Any) -> Any:
    text = str(value)
    return value if len(text) <= VALUE_CHARACTERS else f"[{len(text)} characters]"
