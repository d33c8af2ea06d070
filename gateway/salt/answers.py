"""What is told to a Salt master of what waits in the spool: answers in the shape of a minion's, and events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import asdict

from device_agent.protocol.globs import compile_glob
from device_agent.protocol.messages import AuditRecord, Event, Item, Job, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.several import in_salt
from gateway.jobs.record import NOT_RUN_RETCODE
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob

BARRED: Final = (
    "salt/job/*/publish",
    "salt/job/*/new",
    "salt/job/*/return",
    "salt/job/*/ret/*",
    "salt/key",
    "salt/cloud/*",
    "salt/run/*",
    "salt/cluster/*",
    "salt/wheel/*/new",
    "salt/wheel/*/return",
)
"""Tags that Salt lets nobody but the master use, and that of an answer, which is told as one and not as an event.

An event with such a tag goes under the site's own (``own_tag``).
"""

_RAN: Final = (Outcome.OK, Outcome.FAILED)
_SAYS: Final = {
    Outcome.REFUSED: "refused",
    Outcome.EXPIRED: "expired: it did not start before the job's end",
    Outcome.UNREACHABLE: "unreachable",
    Outcome.TIMED_OUT: "timed out: it started and did not end in time",
    Outcome.UNKNOWN: "unknown: it may have run",
    Outcome.CANCELLED: "cancelled before it started",
    Outcome.SITE_DARK: "its site did not answer",
}
_barred = [compile_glob(glob) for glob in BARRED]


@dataclass(frozen=True)
class Told:
    """How answers to one job go to one master: with the job's definition where it is not that master's own job."""

    fun: str | Sequence[str]
    """Several names where the job has several functions."""
    fun_args: Sequence[Any] = ()
    load: Mapping[str, Any] | None = None
    master_id: str = ""
    jid: str = ""
    """The jid that it has there, where that is another."""


def answer(record: OutcomeRecord, fun_args: Sequence[Any] = (), fun: str | Sequence[str] = "") -> DeviceAnswer:
    """One outcome. What did not run, or failed without a value, says in words what became of it."""
    value = record.value
    good = record.outcome is Outcome.OK
    if not isinstance(fun, str):
        # What had returned when the job was stopped, or its device lost, is there; what had not says why.
        returned = value if isinstance(value, dict) else {}
        value = {name: returned[name] if name in returned else _words(record) for name in fun}
    elif record.outcome not in _RAN or (value is None and not good):
        value = _words(record)
    return DeviceAnswer(
        value=value,
        retcode=record.retcode if good else record.retcode or NOT_RUN_RETCODE,
        success=good,
        fun_args=fun_args,
        retcodes={} if record.retcodes is UNSET else record.retcodes,
    )


def _words(record: OutcomeRecord) -> str:
    """What became of what returned nothing."""
    if record.outcome in _RAN:
        return record.why or record.outcome.value
    says = _SAYS[record.outcome]
    return f"{says}: {record.why}" if record.why else says


def entries(records: Iterable[OutcomeRecord], told: Mapping[str, Told]) -> list[ReturnsOfJob]:
    """Outcomes by job, each device once in an entry: two sites may have devices of one name."""
    found: dict[tuple[str, int], dict[str, DeviceAnswer]] = {}
    names: dict[str, str | Sequence[str]] = {}
    for record in records:
        names[record.jid] = told[record.jid].fun or record.fun
        place = 0
        while record.id in found.setdefault((record.jid, place), {}):
            place += 1
        found[record.jid, place][record.id] = answer(record, told[record.jid].fun_args, names[record.jid])
    return [
        ReturnsOfJob(
            jid=told[jid].jid or jid,
            fun=names[jid],
            answers=answers,
            load=told[jid].load or {},
            master_id=told[jid].master_id,
            out=outputter(names[jid]),
        )
        for (jid, _), answers in found.items()
    ]


def outputter(fun: str | Sequence[str]) -> str:
    """How ``salt`` shows what a function returns, where that is not its usual way."""
    return (
        "highstate"
        if isinstance(fun, str) and fun in {"state.apply", "state.highstate", "state.sls", "state.single"}
        else ""
    )


def load_of(job: Job) -> dict[str, Any]:
    """What defines a job that the station itself issued, as a Salt master keeps it."""
    fun, arg = in_salt(job.fun, job.arg, job.kwarg)
    return {
        "jid": job.jid,
        "fun": fun,
        "arg": arg,
        "tgt": job.tgt.split(",") if job.tgt_type == "list" else job.tgt,
        "tgt_type": job.tgt_type,
        "user": job.user,
        "ret": "",
    }


def event(item: Item, *, mark: str, gateway: str, twice: bool) -> list[tuple[str, dict[str, Any]]]:
    """What goes on a master's bus for an item; nothing for what is told in another way.

    ``mark`` names the event for ever, so that one that came twice is known; ``gateway`` is this gateway's id there;
    ``twice``: under ``syndic/<gateway>/<tag>`` as well.
    """
    match item:
        case Event():
            data: dict[str, Any] = {**item.data, "outstation": {"event": mark, "site": item.site, "at": item.stamp}}
            tag = own_tag(item.tag, gateway)
        case AuditRecord():
            tag, data = f"outstation/audit/{item.site}", {**asdict(item), "outstation": {"event": mark}}
        case _:
            return []
    return [(tag, data), (f"syndic/{gateway}/{tag}", data)] if twice else [(tag, data)]


def own_tag(tag: str, gateway: str) -> str:
    """The tag itself, or under the site's name where the master would drop it or take it for an answer."""
    return f"outstation/{gateway}/{tag}" if any(barred(tag) for barred in _barred) else tag
