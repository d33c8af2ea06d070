"""An outcome as a row of the store, and as the event that Salt users know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from device_agent.clock import stamp
from device_agent.protocol import limits, tags
from device_agent.protocol.messages import Event, Job, OutcomeRecord, decode_stored, encode_value
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.several import SEVERAL, in_salt, title
from gateway.bus import Bus
from gateway.store.writer import Statement

NOT_RUN_RETCODE = 1

COLUMNS = "jid, site, device, fun, outcome, retcode, value, why, seen, ended, duration, executions"
"""Of the table ``outcomes``, as ``outcome_record`` reads them."""

# The site's own word takes the place of a master's guess about a dark site, and of nothing else.
_PUT = (
    "INSERT INTO outcomes"
    " (jid, site, device, link, fun, outcome, retcode, value, why, seen, ended, duration, executions)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (jid, site, device) DO UPDATE SET link=excluded.link,"
    " outcome=excluded.outcome, retcode=excluded.retcode, value=excluded.value, why=excluded.why, seen=excluded.seen,"
    " ended=excluded.ended, duration=excluded.duration, executions=excluded.executions"
    " WHERE outcomes.outcome = 'site_dark' AND excluded.outcome <> 'site_dark'"
)


def given(
    job: Job, site: str, device: str, outcome: Outcome, why: str, *, seen: float | None, ended: float
) -> OutcomeRecord:
    """An outcome that the station itself gives, with nothing from the device."""
    return OutcomeRecord(
        jid=job.jid,
        site=site,
        id=device,
        fun=title(job.fun, job.arg, job.kwarg),
        outcome=outcome,
        retcode=NOT_RUN_RETCODE,
        why=why,
        seen=seen,
        ended=ended,
    )


def outcome_record(columns: Sequence[Any]) -> OutcomeRecord:
    """The outcome in a row of ``COLUMNS``."""
    jid, site, device, fun, outcome, retcode, value, why, seen, ended, duration, executions = columns
    return OutcomeRecord(
        jid=jid,
        site=site,
        id=device,
        fun=fun,
        outcome=Outcome(outcome),
        retcode=retcode,
        value=None if value is None else decode_stored(value),
        why=why,
        seen=seen,
        ended=ended,
        duration=duration,
        executions=executions,
    )


def outcome_statement(records: Iterable[OutcomeRecord], link: str) -> Statement:
    """The statement that puts outcomes on disk, each once. ``link`` is the site they came by, '' for own devices."""
    return (
        _PUT,
        [
            (
                record.jid,
                record.site,
                record.id,
                link,
                record.fun,
                record.outcome.value,
                record.retcode,
                None if record.value is None else encode_value(record.value),
                record.why,
                record.seen,
                record.ended,
                record.duration,
                record.executions,
            )
            for record in records
        ],
    )


def called(job: Job) -> tuple[str | list[str], list[Any]]:
    """What a job calls and with what, as Salt's events have it: of several functions lists."""
    return in_salt(job.fun, job.arg, job.kwarg) if job.fun == SEVERAL else (job.fun, job.arg)


def new_event(job: Job, ids: Sequence[str]) -> dict[str, Any]:
    """The data of ``salt/job/<jid>/new``; as many of the expected ids as a manifest page holds."""
    fun, arg = called(job)
    return {
        "jid": job.jid,
        "tgt": job.tgt,
        "tgt_type": job.tgt_type,
        "user": job.user,
        "fun": fun,
        "arg": arg,
        "minions": list(ids[: limits.MANIFEST_PAGE]),
        "missing": [],
        "_stamp": stamp(job.issued),
    }


def publish_event(job: Job, returners: Sequence[str]) -> dict[str, Any]:
    """The data of ``salt/job/<jid>/publish``: the job goes out. ``ret`` is its returners, with commas between."""
    fun, arg = called(job)
    return {
        "fun": fun,
        "arg": arg,
        "tgt": job.tgt,
        "jid": job.jid,
        "ret": ",".join(returners),
        "tgt_type": job.tgt_type,
        "user": job.user,
    }


def accepted_events(bus: Bus, job: Job, ids: Sequence[str], returners: Sequence[str], *, held: bool) -> list[Event]:
    """What Salt's master tells of a new job, in its order; one that is held is not published before its release."""
    told = [
        bus.event(job.jid, {"minions": list(ids[: limits.MANIFEST_PAGE])}),
        bus.event(tags.job_new(job.jid), new_event(job, ids)),
    ]
    return told if held else [*told, bus.event(tags.job_publish(job.jid), publish_event(job, returners))]


def return_event(record: OutcomeRecord, job: Job | None) -> Event:
    """The ``salt/job/<jid>/ret/<id>`` event: Salt's keys, and our outcome beside them."""
    fun, arg = (record.fun, []) if job is None else called(job)
    data: dict[str, Any] = {
        "cmd": "_return",
        "id": record.id,
        "jid": record.jid,
        "fun": fun if isinstance(fun, list) else record.fun,
        # What only a device may read is not told to whoever listens.
        "fun_args": [] if job is None or job.sealed else arg,
        "return": record.value,
        "retcode": record.retcode,
        "success": record.outcome is Outcome.OK,
        "user": job.user if job is not None else "",
        "ts": int(record.ended),
        "outcome": record.outcome.value,
        "why": record.why,
        "_stamp": stamp(record.ended),
    }
    return Event(tag=tags.job_return(record.jid, record.id), data=data, stamp=record.ended, site=record.site)


def is_only_heard(event: Event) -> bool:
    """Whether an event is not kept: a return is its job's outcome on disk, unless it came after that was decided.

    That of a scheduled run is of no job that is known here, and kept as it is.
    """
    return tags.is_job_return(event.tag) and not {"late", "schedule"} & event.data.keys()
