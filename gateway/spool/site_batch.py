"""What a batch of a site is sorted into: each item held against the job it is about, or refused and counted.

Nothing is on disk yet, and nothing in memory has changed, when this is done: ``inbox`` commits what it returns. What is
known already, since a site may say it in its spool and in a job's story, is left out. What is about a job of which the
spool has brought less than all is left out as well, and the job is asked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple

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
    encode,
)
from device_agent.protocol.outcomes import PROVISIONAL
from device_agent.protocol.proven import split_proof, with_proof
from device_agent.protocol.targeting import compile_target
from gateway.devices.registry import Registry
from gateway.jobs.asking import Asking
from gateway.jobs.expect import digest
from gateway.jobs.open_jobs import ABOVE, LOCAL, Branch, BranchState, OpenJob, OpenJobs
from gateway.jobs.seal import is_told_of
from gateway.metrics import Metrics
from gateway.site_event import SiteEvent
from gateway.spool.evidence import Evidence, Evidences
from gateway.spool.proven_places import Arrivals
from gateway.spool.queue import Spool
from gateway.spool.streams import Row
from gateway.store.reader import Reader

STORY_PAGES = 2**62


class ProvenItem(NamedTuple):
    """An item as this relay passes it on, with its proof. ``number`` is that of a manifest page, else 0."""

    item: Item
    number: int
    body: bytes


@dataclass
class SiteBatch:
    """The accepted items of one batch, by what happens to them; and what was looked up on the way."""

    site: str
    arrivals: Arrivals
    pages: list[tuple[int, Manifest]] = field(default_factory=list)
    records: list[OutcomeRecord] = field(default_factory=list)
    closes: list[Close] = field(default_factory=list)
    events: list[SiteEvent] = field(default_factory=list)
    audit: list[AuditRecord] = field(default_factory=list)
    jobs: list[OpenJob] = field(default_factory=list)
    passed_on: list[Row] = field(default_factory=list)
    proven: list[ProvenItem] = field(default_factory=list)
    unproven: list[OutcomeRecord] = field(default_factory=list)
    """Outcomes that a relay brought without the proof of their site."""
    refused: int = 0
    joins: list[str] = field(default_factory=list)
    story: bool = False
    asked: dict[str, None] = field(default_factory=dict)
    """Jobs to ask the site for."""
    others: dict[str, None] = field(default_factory=dict)
    """Jids under which the site has another job than the one here."""
    known: dict[str, bool] = field(default_factory=dict)
    parts: dict[str, bool] = field(default_factory=dict)
    listed: set[tuple[str, str, str]] = field(default_factory=set)
    recorded: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)

    def known_now(self, jid: str) -> bool:
        """Whether this batch itself brought the job."""
        return any(opened.job.jid == jid for opened in self.jobs)


class _AskedFor(Exception):
    """The item is left to the story of its job."""


class Sorting:
    """Sorts what sites send."""

    def __init__(
        self,
        *,
        open_jobs: OpenJobs,
        registry: Registry,
        spool: Spool,
        reader: Reader,
        asking: Asking,
        metrics: Metrics,
        clock: Clock,
        evidences: Evidences,
    ) -> None:
        self._evidences = evidences
        self._open_jobs = open_jobs
        self._registry = registry
        self._spool = spool
        self._reader = reader
        self._asking = asking
        self._metrics = metrics
        self._clock = clock

    async def sort(self, site: str, items: list[tuple[int, bytes]], at: str = "", *, story: bool = False) -> SiteBatch:
        """The items of a batch that are acceptable; the others are refused and counted here.

        ``at`` is site/epoch/stream. In a job's ``story`` sequences mean nothing: a page has the number of its content.
        """
        await self._evidences.load()
        batch = SiteBatch(site, Arrivals(self._reader), story=story)
        for sequence, raw in items:
            passing = raw
            try:
                body, proof = split_proof(raw)
                item, evidence = decode_item(body), None
                if item.site != site:
                    told, evidence = await self._believed(batch, item, body, proof)
                    if told is not item:
                        item, passing = told, encode(told)
                    if not self._registry.bind(item.site, site):
                        raise Refused("foreign_site", f"{site} speaks for {item.site}")
                passed_on = await self._take(batch, sequence, item, passing)
            except _AskedFor:
                self._metrics.add("items_asked_for")
                continue
            except Refused as refusal:
                # It will never be acceptable: it is counted here, and the sequence goes on without it.
                self._metrics.refused("uplink", refusal.reason, site, refusal.detail)
                batch.refused += 1
                continue
            batch.passed_on += passed_on
            if isinstance(item, Event):
                batch.events.append(SiteEvent.of(item, evidence.origin if evidence else f"{at}/{sequence}"))
            if evidence is not None:
                await batch.arrivals.add(evidence)
            if proof and passed_on:
                number = batch.pages[-1][0] if isinstance(item, Manifest) else 0
                batch.proven.append(ProvenItem(item, number, passed_on[0].body))
        return batch

    async def _believed(self, batch: SiteBatch, item: Item, body: bytes, proof: bytes) -> tuple[Item, Evidence | None]:
        """What is believed of an item that a relay brings for a site behind it. Raises ``Refused``."""
        try:
            evidence = self._evidences.of(item.site, batch.site, body, proof)
            if evidence is None:
                return self._evidences.relay_word(item, batch.site, self._registry.known), None
            # All else is about a job that is known here, and says nothing new when it is repeated.
            if isinstance(item, Event | AuditRecord) or (
                isinstance(item, JobDefinition) and await self._known_body(item, batch) is None
            ):
                await batch.arrivals.need_fresh(evidence)
        except Refused as refusal:
            self._evidences.refused(item.site, batch.site, refusal.reason)
            if isinstance(item, OutcomeRecord):
                batch.unproven.append(item)
            raise
        return item, evidence

    async def _take(self, batch: SiteBatch, sequence: int, item: Item, body: bytes) -> list[Row]:
        """Sort one item into the batch; returns what goes up from here. Raises ``Refused``.

        A relay passes its sites' words on, but says its own close and its own final page.
        """
        match item:
            case Event() | AuditRecord():
                if batch.story:
                    raise Refused("not_of_a_story", type(item).__name__)
                if isinstance(item, AuditRecord):
                    batch.audit.append(item)
            case JobDefinition():
                if await self._definition_known(item, batch):
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
                if await self._page_known(item, batch):
                    return []
                if item.ids:
                    await self._need_unanswered(item.jid, batch)
                batch.pages.append((_page_number(item) if batch.story else sequence, item))
                batch.listed.update((item.jid, item.site, device) for device in item.ids)
                if item.final:
                    page = encode(msgspec.structs.replace(item, final=False))
                    proof = split_proof(body)[1]
                    return self._spool.passed_on(item, with_proof(page, proof) if proof else page)
            case OutcomeRecord():
                await self._need_part(item.jid, batch)
                await self._need_expected(item, batch)
                if await self._record_known(item, batch):
                    return []
                batch.records.append(item)
            case Close():
                await self._need_part(item.jid, batch)
                if not batch.story and not self._is_whole(item, batch) and self._asking.may_ask(batch.site, item.jid):
                    batch.asked[item.jid] = None
                    raise _AskedFor
                batch.closes.append(item)
                return []
        return self._spool.passed_on(item, body)

    async def _definition_known(self, item: JobDefinition, batch: SiteBatch) -> bool:
        """Whether this job is known here. Raises ``Refused`` when another one has its jid."""
        known = await self._known_body(item, batch)
        if known is None:
            return False
        jid = decode_job(item.job).jid
        if not is_told_of(known, item.job):
            batch.others[jid] = None
            raise Refused("jid_taken", jid)
        await self._join(jid, batch)
        return True

    async def _known_body(self, item: JobDefinition, batch: SiteBatch) -> bytes | None:
        jid = decode_job(item.job).jid
        for opened in (*batch.jobs, self._open_jobs.get(jid)):
            if opened is not None and opened.job.jid == jid:
                return opened.body
        rows = await self._reader.rows("SELECT body FROM jobs WHERE jid = ?", (jid,))
        return bytes(rows[0][0]) if rows else None

    async def _join(self, jid: str, batch: SiteBatch) -> None:
        """A job that is known here: of one that a third station issued, each site that tells of it gets its branch."""
        if await self._is_foreign(jid) and not await self._has_part(jid, batch):
            batch.joins.append(jid)
            batch.parts[jid] = True

    async def _is_foreign(self, jid: str) -> bool:
        opened = self._open_jobs.get(jid)
        if opened is not None:
            return opened.origin not in (LOCAL, ABOVE)
        rows = await self._reader.rows("SELECT origin FROM jobs WHERE jid = ?", (jid,))
        return bool(rows) and rows[0][0] not in (LOCAL, ABOVE)

    async def _need_part(self, jid: str, batch: SiteBatch) -> None:
        """Refuse words about jobs that are unknown here, or in which this site has no part. Raises ``Refused``.

        The definition of a job that somebody else issued may have gone to another master: then it is asked for.
        """
        if self._asking.is_other(batch.site, jid) or jid in batch.others:
            raise Refused("jid_taken", jid)
        if not await self._job_known(jid, batch):
            self._ask_instead(jid, batch)
            raise Refused("unknown_job", jid)
        if not await self._has_part(jid, batch):
            if await self._is_foreign(jid):
                self._ask_instead(jid, batch)
            raise Refused("no_part", f"{batch.site} was never sent job {jid}")

    def _ask_instead(self, jid: str, batch: SiteBatch) -> None:
        if not batch.story and self._asking.may_ask(batch.site, jid):
            batch.asked[jid] = None
            raise _AskedFor

    async def _page_known(self, page: Manifest, batch: SiteBatch) -> bool:
        """Whether a page says nothing that is not known here."""
        opened = self._open_jobs.get(page.jid)
        names = {(page.site, device) for device in page.ids}
        if opened is None:
            return not batch.known_now(page.jid) and names <= (await self._recorded(page.jid, batch)).keys()
        branch = opened.branches.get(batch.site)
        if branch is None or (page.final and branch.state in {BranchState.WAITING, BranchState.SENT}):
            return False
        return names <= branch.awaiting | branch.ended.keys()

    async def _record_known(self, record: OutcomeRecord, batch: SiteBatch) -> bool:
        """Whether the device has an outcome that this one does not take the place of."""
        opened, key = self._open_jobs.get(record.jid), (record.site, record.id)
        if opened is not None:
            branch = opened.branches.get(batch.site)
            earlier = branch.ended.get(key) if branch is not None else None
        elif batch.known_now(record.jid):
            return False
        else:
            earlier = (await self._recorded(record.jid, batch)).get(key)
        return bool(earlier) and (earlier not in PROVISIONAL or record.outcome in PROVISIONAL)

    def _is_whole(self, close: Close, batch: SiteBatch) -> bool:
        """Whether each outcome that a close counts is here, or came in the batch before it."""
        opened = self._open_jobs.get(close.jid)
        if opened is None:
            # Closed here already; or opened by this batch, which then began with the definition.
            return True
        branch = opened.branches.get(batch.site) or Branch(batch.site)
        ended = branch.ended.keys() | {(each.site, each.id) for each in batch.records if each.jid == close.jid}
        listed = {(leaf, device) for jid, leaf, device in batch.listed if jid == close.jid}
        return len(ended) >= sum(close.counts.values()) and branch.awaiting | listed <= ended

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
            if branch is None or branch.state in {BranchState.WAITING, BranchState.SENT}:
                # Who answers has been said, to another master.
                self._ask_instead(record.jid, batch)
        elif key in await self._recorded(record.jid, batch):
            return
        raise Refused("not_expected", f"job {record.jid}: {record.id} of {record.site} is in no manifest")

    async def _recorded(self, jid: str, batch: SiteBatch) -> dict[tuple[str, str], str]:
        """For whom this site answers in a job that is not open here, with the outcome; "" for none."""
        if jid not in batch.recorded:
            found = batch.recorded[jid] = {
                (leaf, device): ""
                for leaf, ids in await self._reader.rows(
                    "SELECT site, ids FROM manifests WHERE jid = ? AND link = ?", (jid, batch.site)
                )
                for device in decode_stored(ids)
            }
            rows = await self._reader.rows("SELECT site, device, outcome FROM outcomes WHERE jid = ?", (jid,))
            found |= {(leaf, device): outcome for leaf, device, outcome in rows if (leaf, device) in found}
        return batch.recorded[jid]

    def _opened(self, batch: SiteBatch, item: JobDefinition) -> OpenJob:
        # Of one site no more than it may have open itself, so that none keeps out what the others tell.
        if (
            len(self._open_jobs) + len(batch.jobs) >= 2 * limits.OPEN_JOBS
            or self._open_jobs.issued_by(batch.site) + len(batch.jobs) >= limits.OPEN_JOBS
        ):
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


def _page_number(page: Manifest) -> int:
    """Where a page of a story is kept: by what it says, so that a repeat replaces itself; above all sequences."""
    content = hashlib.sha256(page.site.encode("ascii") + b"\n" + page.digest).digest()
    return STORY_PAGES + int.from_bytes(content[:7], "big")
