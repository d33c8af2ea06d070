"""Answers without the arguments of other operators' jobs, for roles that the policy does not show them to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gateway.devices.policy import Operator
from gateway.jobs.asker import is_own
from gateway.jobs.open_jobs import LOCAL

HIDDEN: Final = "(hidden by the policy)"

ARGUMENTS: Final = frozenset({"arg", "args", "arguments", "fun_args", "fun_kwargs", "kwarg", "kwargs"})
"""The fields of jobs, calls, events and audit rows that carry arguments."""

NOT_ARGUMENTS: Final = frozenset({"return", "value", "grains", "pillar"})
"""What devices say. A field in there has its name from the device."""

NOBODY: Final = Operator("", frozenset())
"""Is the issuer of nothing."""

_json = msgspec.json.Encoder()
_DATA: Final = b"data: "


def without_arguments(answer: Any, operator: Operator, site: str = "") -> Any:
    """The same answer with ``HIDDEN`` for each argument; what the operator issued at this ``site`` stays as it is.

    An event does not say at which station its job was issued, so its arguments are hidden from its issuer too.
    """
    if isinstance(answer, Mapping):
        if _is_event(answer):
            return _hidden(answer, lambda each: without_arguments(each, NOBODY, site))
        if _is_issuer(answer, operator, site):
            return answer
        return _hidden(answer, lambda each: without_arguments(each, operator, site))
    if isinstance(answer, list | tuple):
        return [without_arguments(each, operator, site) for each in answer]
    return answer


def piece_without_arguments(piece: bytes, operator: Operator, site: str = "") -> bytes:
    """The same for one piece of a stream of server-sent events."""
    before, data, text = piece.partition(_DATA)
    if not data:
        return piece
    shown = without_arguments(msgspec.json.decode(text), operator, site)
    return b"%s%s%s\n\n" % (before, _DATA, _json.encode(shown))


def _hidden(answer: Mapping[str, Any], inner: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        name: HIDDEN if name in ARGUMENTS and value else value if name in NOT_ARGUMENTS else inner(value)
        for name, value in answer.items()
    }


def _is_event(answer: Mapping[str, Any]) -> bool:
    return "tag" in answer and "data" in answer


def _is_issuer(answer: Mapping[str, Any], operator: Operator, site: str) -> bool:
    """Whether the operator issued this job, call or audit row here. Another station may have a namesake."""
    user = str(answer.get("user", ""))
    if answer.get("origin") not in {None, LOCAL} or answer.get("door") == "above" or answer.get("site", site) != site:
        return False
    return user != "" and is_own(user, operator)
