"""What a batch of a site is sorted into: each item held against the job it is about, or refused and counted.

Nothing is on disk yet, and nothing in memory has changed, when this is done: ``inbox`` commits what it returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from device_agent.clock import Clock
from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.messages import (
    AuditRecord,
    Close,
    Event,
    Item,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    decode_item,
    decode_job,
    decode_stored,
)
from device_agent.protocol.targeting import compile_target
from gateway.devices.registry import Registry
from gateway.jobs.expect import digest
from gateway.jobs.open_jobs import ABOVE, LOCAL, Branch, BranchState, OpenJob, OpenJobs
from gateway.jobs.seal import is_told_of
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.spool.streams import Row
from gateway.store.reader import Reader


@dataclass
class SiteBatch:
    """The accepted items of one batch, by what happens to them; and what was looked up on the way."""

    site: str
    pages: list[tuple[int, Manifest]] = field(default_factory=list)
    records: list[OutcomeRecord] = field(default_factory=list)
    closes: list[Close] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    audit: list[AuditRecord] = field(default_factory=list)
    jobs: list[OpenJob] = field(default_factory=list)
    passed_on: list[Row] = field(default_factory=list)
    refused: int = 0
    joins: list[str] = field(default_factory=list)
    known: dict[str, bool] = field(default_factory=dict)
    parts: dict[str, bool] = field(default_factory=dict)
    listed: set[tuple[str, str, str]] = field(default_factory=set)
    recorded: dict[str, set[tuple[str, str]]] = field(default_factory=dict)


class Sorting:
    """Sorts what sites send."""

    def __init__(
        self,
        *,
        open_jobs: OpenJobs,
        registry: Registry,
        spool: Spool,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._open_jobs = open_jobs
        self._registry = registry
        self._spool = spool
        self._reader = reader
        self._metrics = metrics
        self._clock = clock

    async def sort(self, site: str, items: list[tuple[int, bytes]]) -> SiteBatch:
        """The items of a batch that are acceptable; the others are refused and counted here."""
        batch = SiteBatch(site)
        for sequence, body in items:
            try:
                item = decode_item(body)
                if item.site and item.site != site and not self._registry.bind(item.site, site):
                    raise Refused("foreign_site", f"{site} speaks for {item.site}")
                passed_on = await self._take(batch, sequence, item, body)
            except Refused as refusal:
                # It will never be acceptable: it is counted here, and the sequence goes on without it.
                self._metrics.refused("uplink", refusal.reason, site, refusal.detail)
                batch.refused += 1
                continue
            batch.passed_on += passed_on
        return batch

    async def _take(self, batch: SiteBatch, sequence: int, item: Item, body: bytes) -> list[Row]:
        """Sort one item into the batch; returns what goes up from here. Raises ``Refused``.

        A relay passes its sites' words on, but says its own close and its own final page.
        """
        match item:
            case Event():
                batch.events.append(item)
            case AuditRecord():
                batch.audit.append(item)
            case JobDefinition():
                known = await self._known_body(item, batch)
                if known is not None:
                    if not is_told_of(known, item.job):
                        raise Refused("jid_taken", decode_job(item.job).jid)
                    await self._join(decode_job(item.job).jid, batch)
                    return []
                opened = self._opened(batch, item)
                batch.jobs.append(opened)
                batch.known[opened.job.jid] = batch.parts[opened.job.jid] = True
            case Manifest():
                await self._need_part(item.jid, batch)
                if item.count != len(item.ids) or item.digest != digest(item.ids):
                    raise Refused(
                        "manifest_mismatch", f"job {item.jid}: {item.count} announced, {len(item.ids)} listed"
                    )
                if item.ids:
                    await self._need_unanswered(item.jid, batch)
                batch.pages.append((sequence, item))
                batch.listed.update((item.jid, item.site, device) for device in item.ids)
                if item.final:
                    return self._spool.encoded([msgspec.structs.replace(item, final=False)])
            case OutcomeRecord():
                await self._need_part(item.jid, batch)
                await self._need_expected(item, batch)
                batch.records.append(item)
            case Close():
                await self._need_part(item.jid, batch)
                batch.closes.append(item)
                return []
        return self._spool.passed_on(item, body)

    async def _known_body(self, item: JobDefinition, batch: SiteBatch) -> bytes | None:
        jid = decode_job(item.job).jid
        for opened in (*batch.jobs, self._open_jobs.get(jid)):
            if opened is not None and opened.job.jid == jid:
                return opened.body
        rows = await self._reader.rows("SELECT body FROM jobs WHERE jid = ?", (jid,))
        return bytes(rows[0][0]) if rows else None

    async def _join(self, jid: str, batch: SiteBatch) -> None:
        """A job that is known here: of one that a third station issued, each site that tells of it gets its branch."""
        opened = self._open_jobs.get(jid)
        if opened is not None:
            foreign, has_part = opened.origin not in (LOCAL, ABOVE), batch.site in opened.branches
        else:
            rows = await self._reader.rows("SELECT origin FROM jobs WHERE jid = ?", (jid,))
            foreign = bool(rows) and rows[0][0] not in (LOCAL, ABOVE)
            has_part = await self._has_part(jid, batch)
        if foreign and not has_part:
            batch.joins.append(jid)
            batch.parts[jid] = True

    async def _need_part(self, jid: str, batch: SiteBatch) -> None:
        """Refuse words about jobs that are unknown here, or in which this site has no part. Raises ``Refused``."""
        if not await self._job_known(jid, batch):
            raise Refused("unknown_job", jid)
        if not await self._has_part(jid, batch):
            raise Refused("no_part", f"{batch.site} was never sent job {jid}")

    async def _has_part(self, jid: str, batch: SiteBatch) -> bool:
        if jid not in batch.parts:
            opened = self._open_jobs.get(jid)
            batch.parts[jid] = (
                batch.site in opened.branches
                if opened is not None
                else bool(
                    await self._reader.rows("SELECT 1 FROM job_sites WHERE jid = ? AND site = ?", (jid, batch.site))
                )
            )
        return batch.parts[jid]

    async def _job_known(self, jid: str, batch: SiteBatch) -> bool:
        if jid not in batch.known:
            batch.known[jid] = self._open_jobs.get(jid) is not None or bool(
                await self._reader.rows("SELECT 1 FROM jobs WHERE jid = ?", (jid,))
            )
        return batch.known[jid]

    async def _need_unanswered(self, jid: str, batch: SiteBatch) -> None:
        """Who will answer is said until the final page, and not after it. Raises ``Refused``."""
        opened = self._open_jobs.get(jid)
        branch = opened.branches.get(batch.site) if opened is not None else None
        if branch is not None and branch.state in {BranchState.WAITING, BranchState.SENT}:
            return
        # A part that has ended may have been ended by a guess about a dark site, which the site's own word corrects.
        if await self._reader.rows(
            "SELECT 1 FROM manifests WHERE jid = ? AND link = ? AND page >= 0 AND final = 1", (jid, batch.site)
        ):
            raise Refused("after_final", f"job {jid}: {batch.site} has already said who will answer")

    async def _need_expected(self, record: OutcomeRecord, batch: SiteBatch) -> None:
        """An outcome is only taken for a device that this site said would answer."""
        key = (record.site, record.id)
        if (record.jid, *key) in batch.listed:
            return
        opened = self._open_jobs.get(record.jid)
        if opened is not None:
            branch = opened.branches.get(batch.site)
            if branch is not None and (key in branch.awaiting or key in branch.ended):
                return
        else:
            if record.jid not in batch.recorded:
                batch.recorded[record.jid] = {
                    (leaf, device)
                    for leaf, ids in await self._reader.rows(
                        "SELECT site, ids FROM manifests WHERE jid = ? AND link = ?", (record.jid, batch.site)
                    )
                    for device in decode_stored(ids)
                }
            if key in batch.recorded[record.jid]:
                return
        raise Refused("not_expected", f"job {record.jid}: {record.id} of {record.site} is in no manifest")

    def _opened(self, batch: SiteBatch, item: JobDefinition) -> OpenJob:
        if len(self._open_jobs) + len(batch.jobs) >= 2 * limits.OPEN_JOBS:
            raise Refused("busy", f"{len(self._open_jobs)} jobs are open")
        job = decode_job(item.job)
        try:
            compile_target(job.tgt, job.tgt_type)
        except UsageInvalid as error:
            raise Refused("bad_target", f"job {job.jid}: {error.what}") from None
        # The site decides when its job ends; the deadline here only serves to notice that the site is dark.
        remaining = max(0.0, min(job.expires - job.issued, job.expires - self._clock.wall()))
        opened = OpenJob(
            job=job,
            body=item.job,
            origin=batch.site,
            accepted=self._clock.wall(),
            deadline=self._clock.monotonic() + min(remaining, limits.JOB_EXPIRY_MAX_SECONDS),
        )
        opened.branches = {batch.site: Branch(batch.site, BranchState.SENT)}
        return opened
