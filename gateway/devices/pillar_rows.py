"""Rows of a query as a mapping, as in Salt: the first columns are names, the last is the value. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.devices.pillar_settings import External


def shaped(columns: Sequence[str], rows: Iterable[Sequence[Any]], source: External) -> dict[Any, Any]:
    """What the rows say. Where ``depth`` leaves several columns over, each stands under its own name."""
    found: dict[Any, Any] = {}
    width = len(columns)
    depth = width - 1 if source.depth == 0 or source.depth >= width else source.depth
    for row in rows:
        place = found
        for name in row[: depth - 1]:
            if not isinstance(place.get(name), dict):
                place[name] = {}
            place = place[name]
        if width == 1:
            continue
        if depth == width - 1:
            _put(place, row[depth - 1], row[-1], source)
            continue
        inner = place.setdefault(row[depth - 1], {})
        for column, value in zip(columns[depth:], row[depth:], strict=True):
            _put(inner, column, value, source)
    return {source.root: found} if source.root else found


def _put(place: dict[Any, Any], name: Any, value: Any, source: External) -> None:
    if value is None and source.ignore_null:
        return
    if source.as_list and name in place:
        known = place[name]
        place[name] = [*known, value] if isinstance(known, list) else [known, value]
    else:
        place[name] = value
