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
from device_agent.errors import Refused
from device_agent.protocol import tags
from device_agent.protocol.messages import (
    Close,
    Event,
    Item,
    Job,
    LocalJob,
    Manifest,
    OutcomeRecord,
    decode_item,
    decode_job,
    encode_value,
)
from device_agent.protocol.outcomes import Outcome
from gateway.bus import Bus
from gateway.devices.registry import Registry
from gateway.devices.sites import SiteBook
from gateway.jobs.accept import ADD_BRANCH, ADD_JOB, ADD_PAGE
from gateway.jobs.close import Closing
from gateway.jobs.deliver import SET_BRANCH
from gateway.jobs.expect import digest
from gateway.jobs.open_jobs import Branch, BranchState, OpenJob, OpenJobs
from gateway.jobs.record import new_event, outcome_statement, return_event
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer
from upstream.frames import DeviceRecord

log = logging.getLogger(__name__)


@dataclass
class _Batch:
    """The accepted items of one batch, by what happens to them."""

    site: str
    pages: list[tuple[int, Manifest]] = field(default_factory=list)
    records: list[OutcomeRecord] = field(default_factory=list)
    closes: list[Close] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    jobs: list[OpenJob] = field(default_factory=list)
    passed_on: list[tuple[str, bytes]] = field(default_factory=list)


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
        known: dict[str, bool] = {}
        for sequence, body in items:
            try:
                item = decode_item(body)
                await self._check(site, item, known)
            except Refused as refusal:
                # It will never be acceptable: it is counted here, and the sequence goes on without it.
                self._metrics.refused("uplink", refusal.reason, site, refusal.detail)
                continue
            match item:
                case Manifest():
                    batch.pages.append((sequence, item))
                case OutcomeRecord():
                    batch.records.append(item)
                case Close():
                    batch.closes.append(item)
                case Event():
                    batch.events.append(item)
                case LocalJob():
                    batch.jobs.append(self._opened(site, item))
            # A relay answers for its sites: it passes their words on, but says its own close and its own final page.
            if isinstance(item, Manifest) and item.final:
                batch.passed_on += self._spool.encoded([msgspec.structs.replace(item, final=False)])
            elif not isinstance(item, Close):
                batch.passed_on.append((type(item).__name__.lower(), body))
        return batch

    async def _check(self, site: str, item: Item, known: dict[str, bool]) -> None:
        """Refuse what this site may not say, and what makes no sense. Raises ``Refused``."""
        if isinstance(item, Event):
            return
        if item.site != site and not self._registry.bind(item.site, site):
            raise Refused("foreign_site", f"{site} speaks for {item.site}")
        if isinstance(item, Manifest) and (item.count != len(item.ids) or item.digest != digest(item.ids)):
            raise Refused("manifest_mismatch", f"job {item.jid}: {item.count} announced, {len(item.ids)} listed")
        if isinstance(item, LocalJob):
            jid = decode_job(item.job).jid
            if await self._job_known(jid, known):
                raise Refused("jid_taken", jid)
            known[jid] = True
        elif not await self._job_known(item.jid, known):
            raise Refused("unknown_job", item.jid)

    async def _job_known(self, jid: str, known: dict[str, bool]) -> bool:
        if jid not in known:
            known[jid] = self._open_jobs.get(jid) is not None or bool(
                await self._reader.rows("SELECT 1 FROM jobs WHERE jid = ?", (jid,))
            )
        return known[jid]

    def _opened(self, site: str, item: LocalJob) -> OpenJob:
        job = decode_job(item.job)
        # The site decides when its job ends; the deadline here only serves to notice that the site is dark.
        remaining = max(0.0, min(job.expires - job.issued, job.expires - self._clock.wall()))
        opened = OpenJob(
            job=job,
            body=item.job,
            origin=site,
            accepted=self._clock.wall(),
            deadline=self._clock.monotonic() + remaining,
        )
        opened.branches = {site: Branch(site, BranchState.SENT)}
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
            (ADD_BRANCH, [(opened.job.jid, batch.site, BranchState.SENT.value) for opened in batch.jobs]),
            (
                ADD_PAGE,
                [
                    (page.jid, batch.site, sequence, page.site, encode_value(page.ids), int(page.final))
                    for sequence, page in batch.pages
                ],
            ),
            outcome_statement(batch.records, batch.site),
            (SET_BRANCH, [*answered, *closed]),
            self._bus.keeping(batch.events)[0],
            *self._spool.adding_encoded(batch.passed_on),
        ]

    async def _tell(self, batch: _Batch) -> None:
        for opened in batch.jobs:
            self._open_jobs.add(opened)
            event = self._bus.event(tags.job_new(opened.job.jid), new_event(opened.job, []))
            await self._bus.fire([event], upward=False)
        touched: dict[str, OpenJob] = {}
        for _, page in batch.pages:
            self._take_page(batch.site, page, touched)
        for record in batch.records:
            self._take_record(batch.site, record, touched)
        self._metrics.add("outcomes", len(batch.records))
        for opened in touched.values():
            await self._closing.answered(opened)
        for close in batch.closes:
            await self._take_close(batch.site, close, touched)
        self._bus.publish(batch.events)
        if self._bus.listened:
            self._bus.publish([return_event(record, self._job_of(record.jid)) for record in batch.records])
        for opened in touched.values():
            await self._closing.check(opened)

    def _job_of(self, jid: str) -> Job | None:
        opened = self._open_jobs.get(jid)
        return opened.job if opened is not None else None

    def _take_page(self, site: str, page: Manifest, touched: dict[str, OpenJob]) -> None:
        opened = self._open_jobs.get(page.jid)
        branch = opened.branches.get(site) if opened is not None else None
        if opened is None or branch is None or branch.state is BranchState.CLOSED:
            return
        touched[page.jid] = opened
        fresh = {(page.site, device) for device in page.ids} - branch.awaiting
        branch.awaiting |= fresh
        branch.expected += len(fresh)
        opened.expected += len(fresh)
        if page.final:
            branch.state = BranchState.ANSWERED

    def _take_record(self, site: str, record: OutcomeRecord, touched: dict[str, OpenJob]) -> None:
        opened = self._open_jobs.get(record.jid)
        branch = opened.branches.get(site) if opened is not None else None
        if opened is None or branch is None:
            return
        touched[record.jid] = opened
        if (record.site, record.id) in branch.awaiting:
            branch.awaiting.discard((record.site, record.id))
            opened.counts[record.outcome.value] += 1

    async def _take_close(self, site: str, close: Close, touched: dict[str, OpenJob]) -> None:
        opened = self._open_jobs.get(close.jid)
        branch = opened.branches.get(site) if opened is not None else None
        if opened is None or branch is None or branch.state is BranchState.CLOSED:
            return
        touched[close.jid] = opened
        if branch.awaiting:
            # The site's last word leaves devices without an outcome: that must never be silence.
            self._metrics.refused(
                "uplink", "close_incomplete", site, f"job {close.jid}: {len(branch.awaiting)} missing"
            )
            records = [
                OutcomeRecord(
                    jid=close.jid,
                    site=leaf,
                    id=device,
                    fun=opened.job.fun,
                    outcome=Outcome.UNKNOWN,
                    why="the site closed the job without an outcome for this device",
                    ended=self._clock.wall(),
                )
                for leaf, device in sorted(branch.awaiting)
            ]
            try:
                await self._writer.commit([outcome_statement(records, site), *self._spool.adding(records)])
            except StoreFailed as error:
                # The branch stays open, and the bound on a site that does not close ends it.
                log.error("missing outcomes not written jid=%s error=%s", close.jid, error.found)
                return
            opened.counts[Outcome.UNKNOWN.value] += len(records)
            branch.awaiting.clear()
        branch.state = BranchState.CLOSED
        await self._closing.answered(opened)
