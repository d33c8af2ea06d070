"""An outcome as a row of the store, and as the event that Salt users know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from device_agent.clock import stamp
from device_agent.protocol import limits, tags
from device_agent.protocol.messages import Event, Job, OutcomeRecord, encode_value
from device_agent.protocol.outcomes import Outcome
from gateway.store.writer import Statement

NOT_RUN_RETCODE = 1
"""The return code of an outcome that the station itself gave."""

# The site's own word takes the place of a master's guess about a dark site, and of nothing else.
_PUT = (
    "INSERT INTO outcomes"
    " (jid, site, device, link, fun, outcome, retcode, value, why, seen, ended, duration, executions)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (jid, site, device) DO UPDATE SET link=excluded.link,"
    " outcome=excluded.outcome, retcode=excluded.retcode, value=excluded.value, why=excluded.why, seen=excluded.seen,"
    " ended=excluded.ended, duration=excluded.duration, executions=excluded.executions"
    " WHERE outcomes.outcome = 'site_dark' AND excluded.outcome <> 'site_dark'"
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


def new_event(job: Job, ids: Sequence[str]) -> dict[str, Any]:
    """The data of ``salt/job/<jid>/new``; as many of the expected ids as a manifest page holds."""
    return {
        "jid": job.jid,
        "tgt": job.tgt,
        "tgt_type": job.tgt_type,
        "user": job.user,
        "fun": job.fun,
        "arg": job.arg,
        "minions": list(ids[: limits.MANIFEST_PAGE]),
        "missing": [],
        "_stamp": stamp(job.issued),
    }


def return_event(record: OutcomeRecord, job: Job | None) -> Event:
    """The ``salt/job/<jid>/ret/<id>`` event: Salt's keys, and our outcome beside them."""
    data: dict[str, Any] = {
        "cmd": "_return",
        "id": record.id,
        "jid": record.jid,
        "fun": record.fun,
        "fun_args": job.arg if job is not None else [],
        "return": record.value,
        "retcode": record.retcode,
        "success": record.outcome is Outcome.OK,
        "user": job.user if job is not None else "",
        "outcome": record.outcome.value,
        "why": record.why,
        "_stamp": stamp(record.ended),
    }
    return Event(tag=tags.job_return(record.jid, record.id), data=data, stamp=record.ended, site=record.site)
