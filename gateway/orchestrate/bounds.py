"""What steps returned, as small as an answer may be: what is left out is said. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from device_agent.protocol.messages import encode_value

DEPTH: Final = 8
"""Deeper than this a device's value is told as a text: an answer as a whole may nest so deep and no deeper."""

TEXT_CHARACTERS: Final = 2000
LEAST_BYTES: Final = 4096


def flat(value: Any, depth: int = DEPTH) -> Any:
    """A value that nests at most so deep; what is below is JSON text."""
    if isinstance(value, dict) and depth > 0:
        return {str(name): flat(inner, depth - 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) and depth > 0:
        return [flat(inner, depth - 1) for inner in value]
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str)[:TEXT_CHARACTERS]
    return value


def fitting(result: dict[str, Any], most: int) -> dict[str, Any]:
    """A step's result of at most about so many bytes: values give way, names and comment do not."""
    most = max(most, LEAST_BYTES)
    if len(encode_value(result)) <= most:
        return result
    changes = result["changes"]
    returned = changes.get("ret")
    jid = result.get("__jid__", "")
    where = f": outstation jobs show {jid}" if jid else ""
    if not isinstance(returned, dict):
        return _without(result, {}, f"What it returned is too large to be told here{where}")
    kept: dict[str, Any] = {}
    size = len(encode_value({**result, "changes": {}}))
    for name, value in returned.items():
        size += len(name) + len(encode_value(value)) + 8
        if size > most:
            break
        kept[name] = value
    left_out = f"The values of {len(returned) - len(kept)} devices are too large to be told here{where}"
    return _without(result, {**changes, "ret": kept}, left_out)


def _without(result: dict[str, Any], changes: dict[str, Any], why: str) -> dict[str, Any]:
    comment = result["comment"]
    return {**result, "changes": changes, "comment": f"{comment[:TEXT_CHARACTERS]}\n{why}", "truncated": True}
