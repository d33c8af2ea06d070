"""What sites send up is put on disk here, each item once, and then handed to whom it concerns.

One commit for a whole batch holds the items' rows, the same items in this station's own spool when it has masters
itself (a relay), and the site's position: all of it or nothing. Implements ``upstream.ports.Inbox``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.protocol import tags
from device_agent.protocol.messages import (
    Close,
    Job,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    decode_job,
    encode_value,
)
from device_agent.protocol.outcomes import PROVISIONAL
from gateway.audit.book import keeping
from gateway.bus import Bus
from gateway.config import SitesSettings
from gateway.devices.authority import Authority
from gateway.devices.registry import REVOKED, Registry
from gateway.devices.sites import SiteBook
from gateway.jobs.accept import ADD_BRANCH, ADD_JOB, ADD_PAGE
from gateway.jobs.asking import Asking, untold, whole
from gateway.jobs.branches import SET_BRANCH, Branches
from gateway.jobs.close import Closing
from gateway.jobs.open_jobs import Branch, BranchState, OpenJob, OpenJobs
from gateway.jobs.record import new_event, outcome_statement, return_event
from gateway.metrics import Metrics
from gateway.reactor import site_reactions
from gateway.site_event import SiteEvent
from gateway.spool.evidence import Evidences
from gateway.spool.proven_records import ProvenRecords
from gateway.spool.queue import Spool
from gateway.spool.received import received, told
from gateway.spool.site_batch import SiteBatch, Sorting
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer
from upstream.frames import DeviceRecord, LedgerRow, Stream

log = logging.getLogger(__name__)

_COUNT_AGAIN = (
    "UPDATE jobs SET expected = (SELECT count(*) FROM outcomes WHERE outcomes.jid = jobs.jid)"
    " WHERE jid = ? AND closed IS NOT NULL"
)
"""A job that ended while a site was dark may have been meant for more of its devices than were known here."""


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
        asking: Asking,
        branches: Branches,
        authority: Authority,
        settings: SitesSettings | None = None,
        syndic_tags: bool = False,
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
        rules = settings or SitesSettings()
        self.evidences = Evidences(
            authority=authority,
            reader=reader,
            clock=clock,
            require=rules.require_proof,
            unproven=rules.unproven,
        )
        self._records = ProvenRecords(evidences=self.evidences, reader=reader, metrics=metrics)
        self._sorting = Sorting(
            open_jobs=open_jobs,
            registry=registry,
            spool=spool,
            reader=reader,
            asking=asking,
            metrics=metrics,
            clock=clock,
            evidences=self.evidences,
        )
        self._asking = asking
        self._branches = branches
        self._syndic_tags = syndic_tags

    @property
    def passes_on(self) -> bool:
        """Whether what sites say goes on to a station above, which believes it by the sites' signatures alone."""
        return self._spool.enabled

    async def rows_unproven(self, site: str) -> bool:
        """Whether there are registry rows of this site here that it did not sign."""
        return bool(
            await self._reader.rows(
                "SELECT 1 FROM devices WHERE site = ? AND link = site AND proven IS NULL AND state <> ? LIMIT 1",
                (site, REVOKED),
            )
        )

    async def position(self, site: str, epoch: str) -> tuple[dict[Stream, int], int]:
        """Where the streams of this site's spool and its registry go on; a new epoch (a new store) starts at 0."""
        entry = self._site_book.get(site)
        if entry.epoch == epoch:
            return dict(entry.positions), entry.revision
        if entry.epoch:
            log.warning("the site has a new store site=%s epoch=%s", site, epoch)
            await self._branches.site_forgot(site)
        # On disk at once: what it takes from now on is not lost, however often it connects before it sends anything.
        await self._writer.commit(self._site_book.position_statements(site, epoch, {}, 0))
        self._site_book.moved(site, epoch, {}, 0)
        return {}, 0

    async def commit_records(self, site: str, epoch: str, records: list[DeviceRecord]) -> int:
        """Put registry rows on disk with the site's revision."""
        revision = records[-1].revision
        taken, proofs = await self._records.judged(site, records, passes_on=self.passes_on)
        position = self._site_book.position_statements(site, epoch, {}, revision)
        await self._registry.keep_records(site, taken, [*position, *proofs])
        self._site_book.moved(site, epoch, {}, revision)
        return revision

    async def keep_ledger(self, site: str, rows: Sequence[LedgerRow]) -> None:
        """Keep what a site says of its ledger."""
        await self._writer.commit([told(site, rows, self._clock.wall())])

    async def commit(self, site: str, epoch: str, stream: Stream, items: list[tuple[int, bytes]]) -> int:
        """Put items on disk with the site's sequence, then tell whom they concern."""
        entry = self._site_book.get(site)
        revision = entry.revision if entry.epoch == epoch else 0
        sequence = items[-1][0]
        batch = await self._sorting.sort(site, items, f"{site}/{epoch}/{stream}")
        if self._syndic_tags:
            # As behind a syndic: each event comes under its own tag, and a second time under one that names the site.
            batch.events = [each for event in batch.events for each in (event, _through(site, event))]
        await self._writer.commit(
            [
                *self._statements(batch),
                *self._site_book.position_statements(site, epoch, {stream: sequence}, revision),
                received(site, stream, len(items), batch.refused),
                untold(site, batch.asked),
            ]
        )
        self._site_book.moved(site, epoch, {stream: sequence}, revision)
        await self._after_commit(batch)
        return sequence

    async def commit_story(self, site: str, items: list[bytes]) -> None:
        """Put on disk what is new in a story; the site's position in its spool stays where it is."""
        batch = await self._sorting.sort(site, [(0, body) for body in items], story=True)
        ended = [close.jid for close in batch.closes]
        await self._writer.commit([*self._statements(batch), whole(site, ended)])
        for jid in batch.parts:
            self._asking.told(site, jid)
        await self._after_commit(batch)
        if ended:
            await self._asking.ask_untold(site, len(ended))

    async def unknown_job(self, site: str, jid: str) -> None:
        """A site says that it does not know a job it was asked for."""
        if self._asking.not_known(site, jid) and self._open_jobs.get(jid) is None:
            # What it said of it before will never make sense.
            self._metrics.refused("uplink", "unknown_job", site, jid)
        await self._branches.job_unknown(site, jid)
        if await self._asking.is_untold(site, jid):
            await self._writer.commit([whole(site, [jid])])
            await self._asking.ask_untold(site, 1)

    async def _after_commit(self, batch: SiteBatch) -> None:
        self._spool.added()
        await self._tell(batch)
        for jid in batch.others:
            self._asking.other(batch.site, jid)
            await self._branches.job_taken(batch.site, jid)
        for jid in batch.asked:
            await self._asking.ask_once(batch.site, jid)

    def _statements(self, batch: SiteBatch) -> list[Statement]:
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        answered = [(BranchState.ANSWERED.value, page.jid, batch.site) for _, page in batch.pages if page.final]
        late = {record.jid for record in batch.records if self._open_jobs.get(record.jid) is None}
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
            (_COUNT_AGAIN, [(jid,) for jid in sorted(late)]),
            (SET_BRANCH, [*answered, *closed]),
            *self._bus.keeping_of_sites(batch.events),
            *site_reactions.keeping(batch.events, wall, self._metrics),
            keeping(batch.audit),
            *self._spool.adding_encoded(batch.passed_on),
            *batch.arrivals.statements(),
            *self.evidences.changed(),
            *_kept(batch),
        ]

    async def _tell(self, batch: SiteBatch) -> None:
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
        for record in batch.unproven:
            branch = self._branch(batch.site, record.jid, touched)
            if branch is not None:
                branch.unproven.add((record.site, record.id))
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


def _through(site: str, event: SiteEvent) -> SiteEvent:
    return replace(event, tag=tags.through(site, event.tag))


def _kept(batch: SiteBatch) -> list[Statement]:
    """The statements by which a relay keeps what its sites signed, to tell it again in the story of a job."""
    jobs: list[tuple[bytes, str]] = []
    pages: list[tuple[bytes, str, str, int]] = []
    outcomes: list[tuple[bytes, str, str, str]] = []
    for item, number, body in batch.proven:
        if isinstance(item, JobDefinition):
            jobs.append((body, decode_job(item.job).jid))
        elif isinstance(item, Manifest):
            pages.append((body, item.jid, batch.site, number))
        elif isinstance(item, OutcomeRecord):
            outcomes.append((body, item.jid, item.site, item.id))
    kept: list[Statement] = [
        ("UPDATE jobs SET proven = ? WHERE jid = ?", jobs),
        ("UPDATE manifests SET proven = ? WHERE jid = ? AND link = ? AND page = ?", pages),
        ("UPDATE outcomes SET proven = ? WHERE jid = ? AND site = ? AND device = ?", outcomes),
    ]
    return [statement for statement in kept if statement[1]]
