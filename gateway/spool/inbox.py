"""What sites send up is put on disk here, each item once, and then handed to whom it concerns.

One commit for a whole batch holds the items' rows, the same items in this station's own spool when it has masters
itself (a relay), and the site's position: all of it or nothing. Implements ``upstream.ports.Inbox``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from device_agent.clock import Clock
from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import limits, tags
from device_agent.protocol.messages import (
    AuditRecord,
    Close,
    Event,
    Item,
    Job,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    decode_item,
    decode_job,
    decode_stored,
    encode_value,
)
from device_agent.protocol.outcomes import PROVISIONAL
from device_agent.protocol.targeting import compile_target
from gateway.audit.book import keeping
from gateway.bus import Bus
from gateway.devices.registry import Registry
from gateway.devices.sites import SiteBook
from gateway.jobs.accept import ADD_BRANCH, ADD_JOB, ADD_PAGE
from gateway.jobs.branches import SET_BRANCH
from gateway.jobs.close import Closing
from gateway.jobs.expect import digest
from gateway.jobs.open_jobs import ABOVE, LOCAL, Branch, BranchState, OpenJob, OpenJobs
from gateway.jobs.record import new_event, outcome_statement, return_event
from gateway.jobs.seal import is_told_of
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer
from upstream.frames import DeviceRecord

log = logging.getLogger(__name__)


@dataclass
class _Batch:
    """The accepted items of one batch, by what happens to them; and what was looked up on the way."""

    site: str
    pages: list[tuple[int, Manifest]] = field(default_factory=list)
    records: list[OutcomeRecord] = field(default_factory=list)
    closes: list[Close] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    audit: list[AuditRecord] = field(default_factory=list)
    jobs: list[OpenJob] = field(default_factory=list)
    passed_on: list[tuple[str, bytes]] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    known: dict[str, bool] = field(default_factory=dict)
    parts: dict[str, bool] = field(default_factory=dict)
    listed: set[tuple[str, str, str]] = field(default_factory=set)
    recorded: dict[str, set[tuple[str, str]]] = field(default_factory=dict)


class Inbox:
    """Commits batches and registry rows of sites."""

    def __init__(
        self,
        *,
        open_jobs: OpenJobs,
        registry: Registry,
        site_book: SiteBook,
        closing: Closing,
        spool: Spool,
        writer: Writer,
        reader: Reader,
        bus: Bus,
        metrics: Metrics,
        clock: Clock,
        on_new_store: Callable[[str], Awaitable[None]],
    ) -> None:
        self._open_jobs = open_jobs
        self._registry = registry
        self._site_book = site_book
        self._closing = closing
        self._spool = spool
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._on_new_store = on_new_store

    async def position(self, site: str, epoch: str) -> tuple[int, int]:
        """Where this site's spool and registry go on; a new epoch (a new store) starts at 0."""
        entry = self._site_book.get(site)
        if entry.epoch == epoch:
            return entry.confirmed, entry.revision
        if entry.epoch:
            log.warning("the site has a new store site=%s epoch=%s", site, epoch)
            await self._on_new_store(site)
        return 0, 0

    async def commit_records(self, site: str, epoch: str, records: list[DeviceRecord]) -> int:
        """Put registry rows on disk with the site's revision."""
        entry = self._site_book.get(site)
        confirmed = entry.confirmed if entry.epoch == epoch else 0
        revision = records[-1].revision
        await self._registry.keep_records(
            site, records, [self._site_book.position_statement(site, epoch, confirmed, revision)]
        )
        entry.epoch, entry.confirmed, entry.revision = epoch, confirmed, revision
        return revision

    async def commit(self, site: str, epoch: str, items: list[tuple[int, bytes]]) -> int:
        """Put items on disk with the site's sequence, then tell whom they concern."""
        entry = self._site_book.get(site)
        revision = entry.revision if entry.epoch == epoch else 0
        sequence = items[-1][0]
        batch = await self._sort(site, items)
        await self._writer.commit(
            [*self._statements(batch), self._site_book.position_statement(site, epoch, sequence, revision)]
        )
        entry.epoch, entry.confirmed, entry.revision = epoch, sequence, revision
        self._spool.added()
        await self._tell(batch)
        return sequence

    async def _sort(self, site: str, items: list[tuple[int, bytes]]) -> _Batch:
        batch = _Batch(site)
        for sequence, body in items:
            try:
                item = decode_item(body)
                if item.site and item.site != site and not self._registry.bind(item.site, site):
                    raise Refused("foreign_site", f"{site} speaks for {item.site}")
                passed_on = await self._take(batch, sequence, item, body)
            except Refused as refusal:
                # It will never be acceptable: it is counted here, and the sequence goes on without it.
                self._metrics.refused("uplink", refusal.reason, site, refusal.detail)
                continue
            batch.passed_on += passed_on
        return batch

    async def _take(self, batch: _Batch, sequence: int, item: Item, body: bytes) -> list[tuple[str, bytes]]:
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
        return [(type(item).__name__.lower(), body)]

    async def _known_body(self, item: JobDefinition, batch: _Batch) -> bytes | None:
        jid = decode_job(item.job).jid
        for opened in (*batch.jobs, self._open_jobs.get(jid)):
            if opened is not None and opened.job.jid == jid:
                return opened.body
        rows = await self._reader.rows("SELECT body FROM jobs WHERE jid = ?", (jid,))
        return bytes(rows[0][0]) if rows else None

    async def _join(self, jid: str, batch: _Batch) -> None:
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

    async def _need_part(self, jid: str, batch: _Batch) -> None:
        """Refuse words about jobs that are unknown here, or in which this site has no part. Raises ``Refused``."""
        if not await self._job_known(jid, batch):
            raise Refused("unknown_job", jid)
        if not await self._has_part(jid, batch):
            raise Refused("no_part", f"{batch.site} was never sent job {jid}")

    async def _has_part(self, jid: str, batch: _Batch) -> bool:
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

    async def _job_known(self, jid: str, batch: _Batch) -> bool:
        if jid not in batch.known:
            batch.known[jid] = self._open_jobs.get(jid) is not None or bool(
                await self._reader.rows("SELECT 1 FROM jobs WHERE jid = ?", (jid,))
            )
        return batch.known[jid]

    async def _need_unanswered(self, jid: str, batch: _Batch) -> None:
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

    async def _need_expected(self, record: OutcomeRecord, batch: _Batch) -> None:
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

    def _opened(self, batch: _Batch, item: JobDefinition) -> OpenJob:
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

    def _statements(self, batch: _Batch) -> list[Statement]:
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        answered = [(BranchState.ANSWERED.value, page.jid, batch.site) for _, page in batch.pages if page.final]
        closed = [(BranchState.CLOSED.value, close.jid, batch.site) for close in batch.closes]
        return [
            (
                ADD_JOB,
                [
                    (opened.job.jid, opened.body, opened.origin, wall + opened.deadline - monotonic, wall)
                    for opened in batch.jobs
                ],
            ),
            (
                ADD_BRANCH,
                [
                    (jid, batch.site, BranchState.SENT.value)
                    for jid in [*(opened.job.jid for opened in batch.jobs), *batch.joins]
                ],
            ),
            (
                ADD_PAGE,
                [
                    (page.jid, batch.site, sequence, page.site, encode_value(page.ids), int(page.final))
                    for sequence, page in batch.pages
                ],
            ),
            outcome_statement(batch.records, batch.site),
            (SET_BRANCH, [*answered, *closed]),
            *self._bus.keeping(batch.events),
            keeping(batch.audit),
            *self._spool.adding_encoded(batch.passed_on),
        ]

    async def _tell(self, batch: _Batch) -> None:
        for opened in batch.jobs:
            self._open_jobs.add(opened)
            event = self._bus.event(tags.job_new(opened.job.jid), new_event(opened.job, []))
            await self._bus.fire([event], upward=False)
        for jid in batch.joins:
            joined = self._open_jobs.get(jid)
            if joined is not None:
                joined.branches.setdefault(batch.site, Branch(batch.site, BranchState.SENT))
        touched: dict[str, OpenJob] = {}
        for _, page in batch.pages:
            self._take_page(batch.site, page, touched)
        for record in batch.records:
            self._take_record(batch.site, record, touched)
        for close in batch.closes:
            self._take_close(batch.site, close, touched)
        self._metrics.add("outcomes", len(batch.records))
        self._bus.publish(batch.events)
        await self._bus.kept(len(batch.events))
        if self._bus.listened:
            self._bus.publish([return_event(record, self._job_of(record.jid)) for record in batch.records])
        for opened in touched.values():
            await self._closing.answered(opened)
            await self._closing.check(opened)

    def _job_of(self, jid: str) -> Job | None:
        opened = self._open_jobs.get(jid)
        return opened.job if opened is not None else None

    def _branch(self, site: str, jid: str, touched: dict[str, OpenJob]) -> Branch | None:
        opened = self._open_jobs.get(jid)
        if opened is None or site not in opened.branches:
            return None
        touched[jid] = opened
        return opened.branches[site]

    def _take_page(self, site: str, page: Manifest, touched: dict[str, OpenJob]) -> None:
        branch = self._branch(site, page.jid, touched)
        if branch is None:
            return
        branch.awaiting |= {(page.site, device) for device in page.ids} - branch.ended.keys()
        if page.final and branch.state is not BranchState.CLOSED:
            branch.state = BranchState.ANSWERED

    def _take_record(self, site: str, record: OutcomeRecord, touched: dict[str, OpenJob]) -> None:
        branch = self._branch(site, record.jid, touched)
        if branch is None:
            return
        key, outcome = (record.site, record.id), record.outcome.value
        earlier = branch.ended.get(key)
        if earlier is not None and (earlier not in PROVISIONAL or outcome in PROVISIONAL):
            return
        branch.awaiting.discard(key)
        branch.ended[key] = outcome
        counts = touched[record.jid].counts
        counts[outcome] += 1
        if earlier is not None:
            counts[earlier] -= 1

    def _take_close(self, site: str, close: Close, touched: dict[str, OpenJob]) -> None:
        branch = self._branch(site, close.jid, touched)
        if branch is None:
            return
        branch.state, branch.said_close = BranchState.CLOSED, True
        if branch.awaiting:
            # The site's last word leaves devices without an outcome: delivery gives them one, since the job is not
            # ended while anybody is awaited.
            self._metrics.refused(
                "uplink", "close_incomplete", site, f"job {close.jid}: {len(branch.awaiting)} missing"
            )
            touched[close.jid].look_at = 0.0
