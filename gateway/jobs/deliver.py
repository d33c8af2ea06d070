"""Jobs are delivered: to devices that are here, again to those that said nothing, and to sites when they are back."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError
from device_agent.parts import Part
from device_agent.protocol import limits
from device_agent.protocol.links import Downlink
from device_agent.protocol.messages import Manifest, OutcomeRecord, encode_value
from device_agent.protocol.outcomes import Outcome, State
from device_agent.protocol.targeting import compile_target
from gateway.devices.registry import Registry
from gateway.devices.sites import SiteBook
from gateway.jobs.accept import ADD_DELIVERY, ADD_PAGE
from gateway.jobs.close import Closing
from gateway.jobs.collect import Collection
from gateway.jobs.expect import pages
from gateway.jobs.open_jobs import Branch, BranchState, OpenJob, OpenJobs, Waiting
from gateway.jobs.record import NOT_RUN_RETCODE, outcome_statement
from gateway.jobs.silence import Presence, SiteStanding, Terms, Verdict, judge_device, judge_site, soonest
from gateway.spool.queue import Spool
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

LOOK_CEILING_SECONDS = 1.0
SET_BRANCH = "UPDATE job_sites SET state = ? WHERE jid = ? AND site = ? AND state <> 'closed'"
CAME_BACK = Verdict(Outcome.SITE_DARK, "the site came back after the expiry and has not answered for it yet")
LEFT_OUT = Verdict(Outcome.UNKNOWN, "the site closed the job without an outcome for this device")
_AWAY = Presence(present=False, unheard=False, gone=0.0)


class Delivery(Part):
    """One loop over the open jobs that have something due."""

    name: ClassVar[str] = "deliver"

    def __init__(
        self,
        *,
        open_jobs: OpenJobs,
        registry: Registry,
        site_book: SiteBook,
        downlink_of: Callable[[str], Downlink | None],
        collection: Collection,
        closing: Closing,
        spool: Spool,
        writer: Writer,
        clock: Clock,
    ) -> None:
        self._open_jobs = open_jobs
        self._registry = registry
        self._site_book = site_book
        self._downlink_of = downlink_of
        self._collection = collection
        self._closing = closing
        self._spool = spool
        self._writer = writer
        self._clock = clock
        self._wake = asyncio.Event()

    async def open(self) -> None:
        """Start the loop."""
        self.spawn(self._run(), "due")

    def kick(self) -> None:
        """Something may be due."""
        self._wake.set()

    def moved(self, device: str) -> None:
        """A device came or went: look at what waits for it."""
        for opened in self._open_jobs:
            waiting = opened.waiting.get(device)
            if waiting is not None:
                waiting.due = 0.0
                opened.look_at = 0.0
                self._wake.set()

    async def site_up(self, site: str) -> None:
        """A site is back: it gets the jobs it has not answered, and the cancels it may have missed."""
        for opened in self._open_jobs:
            branch = opened.branches.get(site)
            if branch is not None:
                branch.tries = 0
                await self._offer(opened, branch)

    async def site_forgot(self, site: str) -> None:
        """A site is back with a new store: what it knew of the jobs it had answered is lost with the old one."""
        verdict = Verdict(Outcome.UNKNOWN, "the site lost its store after it took the job")
        for opened in self._open_jobs:
            branch = opened.branches.get(site)
            if branch is not None and branch.state is BranchState.ANSWERED:
                await self._end_site(opened, branch, verdict)

    async def cancel(self, jid: str) -> None:
        """Stop a job from starting where it has not started. Raises ``NotFound`` when no such job is open."""
        opened = self._open_jobs.get(jid)
        if opened is None:
            raise NotFound(f"no open job {jid}", error_id="job.not_open", hint="outstation jobs list --open")
        await self._writer.commit([("UPDATE jobs SET cancelled = 1 WHERE jid = ?", [(jid,)])])
        opened.cancelled = True
        opened.look_at = 0.0
        for waiting in opened.waiting.values():
            waiting.due = 0.0
            waiting.tries = 0
        for branch in opened.branches.values():
            branch.due, branch.tries = 0.0, 0
        self.kick()

    async def cancel_from_above(self, jid: str) -> None:
        """A master cancelled a job; one that is not open here has ended, which its close says."""
        try:
            await self.cancel(jid)
        except NotFound:
            log.info("cancel for a job that is not open jid=%s", jid)
        except StoreFailed as error:
            log.error("cancel not taken, the master repeats it at the next welcome jid=%s error=%s", jid, error.found)

    async def _run(self) -> None:
        while True:
            now = self._clock.monotonic()
            due = soonest(*(opened.look_at for opened in self._open_jobs), now + LOOK_CEILING_SECONDS)
            try:
                async with asyncio.timeout(max(0.0, due - now)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            now = self._clock.monotonic()
            for opened in self._open_jobs:
                if opened.look_at <= now:
                    try:
                        await self._look_at(opened, now)
                    except OutstationError as error:
                        log.error("job not advanced jid=%s error=%s", opened.job.jid, error)
                        opened.look_at = now + LOOK_CEILING_SECONDS

    async def _look_at(self, opened: OpenJob, now: float) -> None:
        terms = Terms(opened.deadline, opened.job.late, opened.job.run_limit, opened.cancelled)
        # A floor under the next look: what is due now is done now, and whatever happens meanwhile lowers it again.
        opened.look_at = now + 60.0
        looks = [await self._look_at_devices(opened, terms, now)]
        branches = list(opened.branches.values())
        looks += [await self._look_at_site(opened, branch, terms, now) for branch in branches]
        opened.look_at = min(opened.look_at, soonest(*looks))
        await self._closing.answered(opened)
        if opened.all_ended:
            await self._closing.check(opened)

    async def _look_at_devices(self, opened: OpenJob, terms: Terms, now: float) -> float:
        look = now + 3600.0
        first: dict[str, list[str]] = defaultdict(list)
        again: dict[str, list[str]] = defaultdict(list)
        for name, waiting in opened.waiting.items():
            if name in opened.committing:
                continue
            device = self._registry.own_device(name)
            presence = Presence(device.present, device.unheard, device.gone) if device else _AWAY
            verdict = judge_device(waiting.state, waiting.since, terms, presence, now)
            if isinstance(verdict, Verdict):
                self._collection.decided(opened, name, verdict.outcome, verdict.why)
                continue
            look = min(look, verdict)
            if device is None or not device.present:
                continue
            if waiting.due <= now:
                (first if waiting.state is State.QUEUED else again)[device.link].append(name)
            else:
                look = min(look, waiting.due)
        if first or again:
            await self._send(opened, first, again, now)
            look = min(look, now + limits.RESEND_FIRST_SECONDS)
        return look

    async def _send(
        self, opened: OpenJob, first: dict[str, list[str]], again: dict[str, list[str]], now: float
    ) -> None:
        fresh = [name for names in first.values() for name in names]
        if fresh:
            # On disk before it is sent: after a crash the station knows that these may have run it.
            await self._writer.commit([(ADD_DELIVERY, [(opened.job.jid, encode_value(fresh))])])
        remaining = opened.deadline - now
        for link in {*first, *again}:
            downlink = self._downlink_of(link)
            names = [*first.get(link, []), *again.get(link, [])]
            for name in names:
                waiting = opened.waiting.get(name)
                if waiting is not None:
                    _sent(waiting, now)
            if downlink is None:
                continue
            if opened.cancelled:
                await downlink.cancel(opened.job.jid, names)
            else:
                await downlink.deliver(opened.body, remaining, names)

    async def _look_at_site(self, opened: OpenJob, branch: Branch, terms: Terms, now: float) -> float:
        if branch.state is BranchState.CLOSED:
            if branch.awaiting:
                # Without a close of its own, the site was given up while dark and has come back with more devices.
                await self._end_site(opened, branch, LEFT_OUT if branch.said_close else CAME_BACK)
            return now + 3600.0
        site = self._site_book.get(branch.site)
        if site.connected and branch.due <= now:
            await self._offer(opened, branch)
        standing = SiteStanding(
            sent=branch.state is not BranchState.WAITING,
            # One page is enough: the site works on it, and a relay may have to wait for others.
            answered=branch.state is BranchState.ANSWERED or branch.expected > 0,
            dark_since=None if site.connected else site.dark_since,
        )
        verdict = judge_site(standing, terms, now)
        if isinstance(verdict, Verdict):
            await self._end_site(opened, branch, verdict)
            return now + 3600.0
        return min(verdict, branch.due) if site.connected else verdict

    async def _offer(self, opened: OpenJob, branch: Branch) -> None:
        """Send a site what it lacks: the job until it has answered, and the cancel while it has not closed.

        Offered again from time to time: a site that was busy said nothing, and a repeat does no harm.
        """
        sites = self._downlink_of("sites")
        if sites is None or branch.state is BranchState.CLOSED:
            return
        now = self._clock.monotonic()
        wait = limits.RESEND_FIRST_SECONDS * 2.0 ** min(branch.tries, 8)
        branch.tries += 1
        branch.due = now + min(limits.RESEND_CEILING_SECONDS, wait)
        if branch.state is BranchState.WAITING and not opened.cancelled and now < opened.deadline:
            await self._writer.commit([(SET_BRANCH, [(BranchState.SENT.value, opened.job.jid, branch.site)])])
            branch.state = BranchState.SENT
        # Asked after the commit: a cancel may have come meanwhile.
        if branch.state is BranchState.WAITING:
            return
        if opened.cancelled:
            await sites.cancel(opened.job.jid, [branch.site])
        # After a cancel too, in this order: a site that never had the job then says that it starts nowhere.
        if branch.state is BranchState.SENT and not branch.expected and (opened.cancelled or now < opened.deadline):
            await sites.deliver(opened.body, opened.deadline - now, [branch.site])

    async def _end_site(self, opened: OpenJob, branch: Branch, verdict: Verdict) -> None:
        """Give every device of a silent site that has no outcome the same one.

        Without a complete manifest, what is known of the site says who else was meant.
        """
        names = set(branch.awaiting)
        manifest: list[Manifest] = []
        if branch.state in (BranchState.WAITING, BranchState.SENT):
            target = compile_target(opened.job.tgt, opened.job.tgt_type)
            meant = {
                (device.site, device.id)
                for device in self._registry.below(branch.site)
                if target.matches(device.id, device.grains)
            }
            guessed = meant - names - branch.ended.keys()
            manifest = self._pages_for(opened, sorted(guessed))
            names |= guessed
        records = self._records(opened, branch, sorted(names), verdict)
        statements: list[Statement] = [
            (
                ADD_PAGE,
                [
                    (opened.job.jid, branch.site, -number, page.site, encode_value(page.ids), 0)
                    for number, page in enumerate(manifest, start=1)
                ],
            ),
            outcome_statement(records, branch.site),
            (SET_BRANCH, [(BranchState.CLOSED.value, opened.job.jid, branch.site)]),
            *self._spool.adding([*manifest, *records]),
        ]
        await self._writer.commit(statements)
        self._spool.added()
        for key in names - branch.ended.keys():
            branch.ended[key] = verdict.outcome.value
            opened.counts[verdict.outcome.value] += 1
        branch.awaiting -= names
        branch.state = BranchState.CLOSED
        await self._closing.answered(opened)
        await self._closing.check(opened)

    def _records(
        self, opened: OpenJob, branch: Branch, names: list[tuple[str, str]], verdict: Verdict
    ) -> list[OutcomeRecord]:
        seen = self._site_book.get(branch.site).last_seen or None
        now = self._clock.wall()
        return [
            OutcomeRecord(
                jid=opened.job.jid,
                site=leaf,
                id=device,
                fun=opened.job.fun,
                outcome=verdict.outcome,
                retcode=NOT_RUN_RETCODE,
                why=verdict.why,
                seen=seen,
                ended=now,
            )
            for leaf, device in names
        ]

    def _pages_for(self, opened: OpenJob, names: list[tuple[str, str]]) -> list[Manifest]:
        by_leaf: dict[str, list[str]] = defaultdict(list)
        for leaf, device in names:
            by_leaf[leaf].append(device)
        return [
            page
            for leaf, ids in by_leaf.items()
            for page in pages(opened.job.jid, leaf, ids, self._registry.revision, final=False)
        ]


def _sent(waiting: Waiting, now: float) -> None:
    if waiting.state is State.QUEUED:
        waiting.state, waiting.since = State.DELIVERED, now
    wait = limits.RESEND_CEILING_SECONDS
    if waiting.state is State.DELIVERED:
        wait = min(wait, limits.RESEND_FIRST_SECONDS * 2.0 ** min(waiting.tries, 8))
    waiting.tries += 1
    waiting.due = now + wait
