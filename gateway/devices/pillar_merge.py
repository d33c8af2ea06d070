"""Pillars laid over each other, by the strategies that Salt names. Pure."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal

Strategy = Literal["smart", "recurse", "list", "overwrite", "none"]


def merge(below: dict[Any, Any], above: dict[Any, Any], strategy: Strategy, *, lists: bool = False) -> dict[Any, Any]:
    """Both as one. ``smart`` is ``recurse`` for YAML; ``lists`` joins lists instead of replacing them."""
    if strategy == "list":
        # What only the upper one has is lost, as it is in Salt.
        return {name: [value, above[name]] if name in above else value for name, value in below.items()}
    if strategy == "overwrite":
        kept = {name: above[name] if name in above else deepcopy(value) for name, value in below.items()}
        return update(kept, above, lists=lists)
    return update(deepcopy(below), above, lists=lists and strategy != "none")


def update(below: dict[Any, Any], above: dict[Any, Any], *, lists: bool = False) -> dict[Any, Any]:
    """Lay a mapping over another, which is changed: mappings become one at every level."""
    for name, value in above.items():
        under = below.get(name)
        if isinstance(under, dict) and isinstance(value, dict):
            below[name] = update(under, value, lists=lists)
        elif lists and isinstance(under, list) and isinstance(value, list):
            below[name] = [*under, *(item for item in value if item not in under)]
        else:
            below[name] = value
    return below
