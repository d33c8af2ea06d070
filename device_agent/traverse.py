"""Nested values: the way to one by a path such as ``location:room:0``, and two laid over each other, as Salt does."""

from __future__ import annotations

from typing import Any

ABSENT = object()


def traversed(data: Any, key: str, delimiter: str = ":") -> Any:
    """What is at the end of the path, or ``ABSENT``. A number is a place in a list, a name looks into its mappings."""
    found = data
    for part in key.split(delimiter):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list):
            inner = next((each[part] for each in found if isinstance(each, dict) and part in each), ABSENT)
            if inner is not ABSENT:
                found = inner
            elif part.isdecimal() and int(part) < len(found):
                found = found[int(part)]
            else:
                return ABSENT
        else:
            return ABSENT
    return found


def merged(below: Any, above: Any) -> Any:
    """One value laid over another: mappings become one at every level, of anything else the upper one stays."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {name: merged(below[name], value) if name in below else value for name, value in above.items()}
