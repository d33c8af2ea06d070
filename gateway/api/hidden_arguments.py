"""Answers without the arguments of other operators' jobs, for roles that the policy does not show them to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.devices.policy import Operator
from gateway.jobs.asker import is_own

HIDDEN: Final = "(hidden by the policy)"

ARGUMENTS: Final = frozenset({"arg", "args", "arguments", "fun_args", "fun_kwargs", "kwarg", "kwargs"})
"""The fields of jobs, calls, events and audit rows that carry arguments."""

NOT_ARGUMENTS: Final = frozenset({"return", "value", "grains", "pillar"})
"""What devices say. A field in there has its name from the device."""

_json = msgspec.json.Encoder()
_DATA: Final = b"data: "


def without_arguments(answer: Any, operator: Operator) -> Any:
    """The same answer with ``HIDDEN`` for each argument; what the operator issued stays as it is."""
    if isinstance(answer, Mapping):
        if is_own(str(answer.get("user", "")), operator):
            return answer
        return {
            name: HIDDEN
            if name in ARGUMENTS and value
            else value
            if name in NOT_ARGUMENTS
            else without_arguments(value, operator)
            for name, value in answer.items()
        }
    if isinstance(answer, list | tuple):
        return [without_arguments(each, operator) for each in answer]
    return answer


def piece_without_arguments(piece: bytes, operator: Operator) -> bytes:
    """The same for one piece of a stream of server-sent events."""
    before, data, text = piece.partition(_DATA)
    if not data:
        return piece
    shown = without_arguments(msgspec.json.decode(text), operator)
    return b"%s%s%s\n\n" % (before, _DATA, _json.encode(shown))
