"""After a restart the open jobs are rebuilt from the store: expected less ended is what is still awaited."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from device_agent.clock import Clock
from device_agent.protocol.links import Sealed
from device_agent.protocol.messages import decode_job, decode_stored
from device_agent.protocol.outcomes import State
from gateway.jobs.handed_out import handed_out
from gateway.jobs.open_jobs import Branch, BranchState, OpenJob, OpenJobs, Waiting
from gateway.store.reader import Reader


async def recover(open_jobs: OpenJobs, reader: Reader, clock: Clock) -> int:
    """Fill ``open_jobs``; returns how many there are."""
    rows = await reader.rows(
        "SELECT jid, body, origin, deadline, accepted, cancelled, held FROM jobs WHERE closed IS NULL"
    )
    for jid, body, origin, deadline, accepted, cancelled, held in rows:
        job = decode_job(body)
        # The deadline is on this machine's wall clock; a clock that stepped cannot stretch it past the original time.
        remaining = min(deadline - clock.wall(), deadline - accepted)
        opened = OpenJob(
            job=job,
            body=body,
            origin=origin,
            accepted=accepted,
            deadline=clock.monotonic() + remaining,
            cancelled=bool(cancelled),
            held=bool(held),
            recovered=True,
        )
        await _fill(opened, reader, jid, clock.monotonic())
        open_jobs.add(opened)
    return len(rows)


async def _fill(opened: OpenJob, reader: Reader, jid: str, now: float) -> None:
    for (body,) in await reader.rows("SELECT body FROM job_seals WHERE jid = ?", (jid,)):
        opened.sealed = msgspec.convert(decode_stored(body), list[Sealed])
    ended: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for site, device, link, outcome in await reader.rows(
        "SELECT site, device, link, outcome FROM outcomes WHERE jid = ?", (jid,)
    ):
        ended[link][site, device] = outcome
        opened.counts[outcome] += 1
    rows = await reader.rows("SELECT returner FROM job_returners WHERE jid = ? ORDER BY returner", (jid,))
    opened.returners = tuple(name for (name,) in rows)
    handed = await handed_out(reader, jid)
    for site, state in await reader.rows("SELECT site, state FROM job_sites WHERE jid = ?", (jid,)):
        opened.branches[site] = Branch(site, BranchState(state), ended=ended[site])
    own_final = False
    for link, site, ids, final in await reader.rows(
        "SELECT link, site, ids, final FROM manifests WHERE jid = ? ORDER BY link, page", (jid,)
    ):
        expected = {(site, device) for device in decode_stored(ids)}
        awaited = expected - ended[link].keys()
        if link == "":
            own_final = own_final or bool(final)
            opened.own_expected += len(expected)
            for _, device in awaited:
                state = State.DELIVERED if device in handed else State.QUEUED
                opened.waiting[device] = Waiting(state, since=now, link=handed.get(device, ""))
        elif link in opened.branches:
            # Also of a site that has closed: whoever it left out still needs an outcome, which delivery gives.
            opened.branches[link].awaiting |= awaited
    opened.manifest_final = own_final
