"""What a command printed, as far as a return can carry it."""

from __future__ import annotations

from typing import Any

from device_agent.command_call import Call, Result, bounded
from device_agent.ended import Ended
from device_agent.protocol import limits

HALF = limits.VALUE_TEXT_BYTES // 2


def both(call: Call, result: Result) -> str:
    """Standard error behind standard output, where they were not mixed already."""
    if call.hide_output:
        return ""
    return bounded("\n".join(text for text in (result.stdout, result.stderr) if text), result.cut)


def whole(call: Call, result: Result) -> Ended:
    """The end of ``cmd.run_all``, with as much of both outputs as a return can carry."""
    shown: dict[str, Any] = result.shown(call)
    if not call.hide_output:
        lost = result.cut
        if len(result.stdout.encode()) + len(result.stderr.encode()) > limits.VALUE_TEXT_BYTES:
            shown["stderr"] = bounded(result.stderr, room=HALF)
        room = limits.VALUE_TEXT_BYTES - len(shown["stderr"].encode())
        shown["stdout"] = bounded(result.stdout, lost, max(HALF, room))
    return result.ended(call, shown)
