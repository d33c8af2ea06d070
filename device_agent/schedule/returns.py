"""What a scheduled run says when it is over: Salt's return of one, as an event that waits for the station. Pure.

In Salt a minion fires ``__schedule_return`` on its own bus and returns the same to its master, which gives it a jid. So
it is here: the agent fires it, and the station makes the event ``salt/job/<jid>/ret/<id>`` of it.
"""

from __future__ import annotations

import os
from typing import Any, Final

from device_agent.ended import Ended
from device_agent.schedule.kept import Run
from device_agent.schedule.zones import shown

TAG: Final = "__schedule_return"
"""Salt's tag for it."""

RETURN_BYTES: Final = 48 * 1024
"""Most that a returned value may have, for the rest of the event to fit as well."""


def returned(device: str, jid: str, run: Run, ended: Ended, zone: Any) -> dict[str, Any]:
    """The data of the event: Salt's keys, and beside them the outcome, the due time and how late it was."""
    args: list[Any] = [*run.arg, *([run.kwarg] if run.kwarg else [])]
    data: dict[str, Any] = {
        "cmd": "_return",
        "id": device,
        "fun": run.fun,
        "fun_args": args,
        "schedule": run.name,
        "jid": jid,
        "pid": os.getpid(),
        "return": ended.value,
        "retcode": ended.retcode,
        "success": ended.outcome == "ok",
        "outcome": ended.outcome,
        "why": ended.why,
        "due": shown(run.due, zone),
    }
    if run.late:
        data["late_seconds"] = round(run.late, 1)
    if run.metadata:
        data["metadata"] = run.metadata
    return data


def too_large(data: dict[str, Any], size: int) -> dict[str, Any]:
    """The same without what it returned."""
    cut = f"result_too_large: {size} bytes, an event takes {RETURN_BYTES}"
    return {**data, "return": None, "fun_args": [], "why": f"{data['why']}; {cut}" if data["why"] else cut}
