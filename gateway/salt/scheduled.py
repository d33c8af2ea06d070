"""What a device ran by its own schedule, told to a Salt master as the return of a minion's scheduled run. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec
from msgspec import Struct

from device_agent.protocol import tags
from device_agent.protocol.messages import Event, Item, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from gateway.salt.answers import answer, outputter
from upstream.salt.ports import ReturnsOfJob

USER: Final = "schedule"
SAYS: Final = ("schedule", "metadata", "due", "late_seconds", "device_jid")
"""What the master's event of it has beside an answer's own keys."""


class _Run(Struct, frozen=True):
    """Of the event that the station made of it."""

    jid: str
    id: str
    fun: str
    outcome: Outcome
    schedule: str
    fun_args: list[Any] = []
    value: Any = msgspec.field(name="return", default=None)
    retcode: int = 0
    why: str = ""


def scheduled(item: Item | None, mark: str) -> ReturnsOfJob | None:
    """The return that goes into the master's job cache, with the job; None for whatever else waits.

    ``mark`` names the event for ever, so that one that came twice is known.
    """
    if not isinstance(item, Event) or not tags.is_job_return(item.tag):
        return None
    try:
        run = msgspec.convert(item.data, _Run)
    except msgspec.ValidationError:
        return None
    if item.tag != tags.job_return(run.jid, run.id):
        return None
    record = OutcomeRecord(
        jid=run.jid,
        site=item.site,
        id=run.id,
        fun=run.fun,
        outcome=run.outcome,
        retcode=run.retcode,
        value=run.value,
        why=run.why,
        ended=item.stamp,
    )
    more: dict[str, Any] = {key: item.data[key] for key in SAYS if key in item.data}
    more["outstation"] = {"event": mark, "site": item.site, "at": item.stamp}
    load = {
        "jid": run.jid,
        "fun": run.fun,
        "arg": run.fun_args,
        "tgt": [run.id],
        "tgt_type": "list",
        "user": USER,
        "ret": "",
    }
    said = replace(answer(record, run.fun_args), more=more)
    return ReturnsOfJob(run.jid, run.fun, {run.id: said}, load, out=outputter(run.fun))
