"""Jobs at the sites below: offered until answered, offered again when a site is back, ended when it stays dark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from device_agent.clock import Clock
from device_agent.protocol import limits
from device_agent.protocol.links import Downlink
from device_agent.protocol.messages import Manifest, OutcomeRecord, encode_value
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.stations import meanable
from device_agent.protocol.targeting import compile_target
from gateway.devices.registry import Registry
from gateway.devices.sites import SiteBook
from gateway.jobs.accept import ADD_PAGE
from gateway.jobs.asking import Asking, untold
from gateway.jobs.close import Closing
from gateway.jobs.expect import pages
from gateway.jobs.open_jobs import Branch, BranchState, OpenJob, OpenJobs
from gateway.jobs.record import given, outcome_statement
from gateway.jobs.reseal import RESEAL_SECONDS, Reseal
from gateway.jobs.seal import Sealer
from gateway.jobs.silence import SiteStanding, Terms, Verdict, judge_site, site_never_answered
from gateway.spool.queue import Spool
from gateway.store.writer import Statement, Writer

SET_BRANCH = "UPDATE job_sites SET state = ? WHERE jid = ? AND site = ? AND state <> 'closed'"
CAME_BACK = Verdict(Outcome.SITE_DARK, "the site came back after the expiry and has not answered for it yet")
LOST = Verdict(Outcome.UNKNOWN, "the site took the job and does not know it any more: it lost its store, or let it go")
OTHER_JOB = Verdict(Outcome.REFUSED, "the site has another job under this jid")
UNPROVEN = Verdict(
    Outcome.UNKNOWN,
    "the relay brought an outcome that the device's site did not sign: it was refused (outstation check)",
)
LEFT_OUT = Verdict(Outcome.UNKNOWN, "the site closed the job without an outcome for this device")


class Branches:
    """What a station does with a job at each site below."""

    def __init__(
        self,
        *,
        open_jobs: OpenJobs,
        registry: Registry,
        site_book: SiteBook,
        downlink_of: Callable[[str], Downlink | None],
        closing: Closing,
        sealer: Sealer,
        reseal: Reseal,
        asking: Asking,
        spool: Spool,
        writer: Writer,
        clock: Clock,
    ) -> None:
        self._open_jobs = open_jobs
        self._registry = registry
        self._site_book = site_book
        self._downlink_of = downlink_of
        self._closing = closing
        self._sealer = sealer
        self._reseal = reseal
        self._asking = asking
        self._spool = spool
        self._writer = writer
        self._clock = clock

    async def site_up(self, site: str) -> None:
        """A site is back: it gets the jobs it has not answered, and the cancels it may have missed.

        Of all others that it has, it is asked what became of them meanwhile: this station may have missed it.
        """
        self._asking.site_up(site)
        for opened in self._open_jobs:
            branch = opened.branches.get(site)
            if branch is not None:
                branch.tries = 0
                await self._offer(opened, branch, anew=True)
        await self._asking.ask_untold(site)

    async def site_stands_by(self, site: str) -> None:
        """A site's spool goes to another master from now on: what it does not bring any more is asked for."""
        for opened in self._open_jobs:
            branch = opened.branches.get(site)
            if branch is not None and branch.state in {BranchState.SENT, BranchState.ANSWERED}:
                await self._asking.ask(site, opened.job.jid, anew=False)

    async def site_mended(self, site: str) -> None:
        """A site takes jobs again: it is offered at once what it could not take."""
        for opened in self._open_jobs:
            branch = opened.branches.get(site)
            if branch is not None and branch.state is BranchState.SENT and not branch.expected:
                branch.tries = 0
                await self._offer(opened, branch)

    async def job_unknown(self, site: str, jid: str) -> None:
        """A site does not know a job: one that it took is lost there, one that it never had is offered again."""
        opened = self._open_jobs.get(jid)
        branch = opened.branches.get(site) if opened is not None else None
        if opened is None or branch is None or branch.state is BranchState.CLOSED:
            return
        if branch.state is BranchState.ANSWERED or branch.expected:
            await self._end_site(opened, branch, LOST)
        elif self._clock.monotonic() >= opened.deadline and not opened.cancelled:
            terms = Terms(opened.deadline, opened.job.late, opened.job.run_limit, opened.cancelled, opened.held)
            known = self._site_book.get(site)
            standing = SiteStanding(
                sent=False,
                answered=False,
                dark_since=None,
                here_since=known.here_since,
                fault=known.fault_since(opened.accepted),
            )
            await self._end_site(opened, branch, site_never_answered(standing, terms))
        else:
            branch.due = opened.look_at = 0.0

    async def job_taken(self, site: str, jid: str) -> None:
        """A site has another job under the jid of one of ours: ours will never run there."""
        opened = self._open_jobs.get(jid)
        branch = opened.branches.get(site) if opened is not None else None
        if opened is not None and branch is not None and branch.state is not BranchState.CLOSED:
            await self._end_site(opened, branch, OTHER_JOB)

    async def site_forgot(self, site: str) -> None:
        """A site is back with a new store, or with what was salvaged of its old one.

        What became of the jobs it took it is asked like any site that is back; what it does not know is lost there.
        """
        await self._registry.site_forgot(site)

    async def reseal_for(self, site: str, jid: str, reason: str) -> None:
        """A site below needs new seals of a job: made here when it was issued here, else asked for further up."""
        opened = self._open_jobs.get(jid)
        link = self._registry.link_of(site) or site
        branch = opened.branches.get(link) if opened is not None else None
        if opened is None or branch is None or branch.state is BranchState.CLOSED:
            return
        if await self._reseal.renew(opened, site, reason):
            await self._hand_to_site(opened, branch)

    async def look_at(self, opened: OpenJob, branch: Branch, terms: Terms, now: float) -> float:
        if branch.state is BranchState.CLOSED:
            if branch.awaiting:
                # Without a close of its own, the site was given up while dark and has come back with more devices.
                left = UNPROVEN if branch.awaiting & branch.unproven else LEFT_OUT
                await self._end_site(opened, branch, left if branch.said_close else CAME_BACK)
            return now + 3600.0
        site = self._site_book.get(branch.site)
        if site.connected and branch.due <= now:
            await self._offer(opened, branch)
        standing = SiteStanding(
            sent=branch.state is not BranchState.WAITING,
            # One page is enough: the site works on it, and a relay may have to wait for others.
            answered=branch.state is BranchState.ANSWERED or branch.expected > 0,
            dark_since=None if site.connected else site.dark_since,
            unheard=site.unheard and opened.recovered,
            here_since=site.here_since,
            fault=site.fault_since(opened.accepted),
        )
        verdict = judge_site(standing, terms, now)
        if isinstance(verdict, Verdict):
            await self._end_site(opened, branch, verdict)
            return now + 3600.0
        return min(verdict, branch.due) if site.connected else verdict

    async def _offer(self, opened: OpenJob, branch: Branch, *, anew: bool = False) -> None:
        """Send a site what it lacks: the job until it has answered, and the cancel while it has not closed.

        Offered again from time to time: a site that was busy said nothing, and a repeat does no harm. Once it has
        answered, it is asked for the rest in the same way.
        """
        sites = self._downlink_of("sites")
        if branch.state is BranchState.CLOSED and not branch.said_close and anew:
            await self._asking.ask(branch.site, opened.job.jid, anew=True)
        if sites is None or branch.state is BranchState.CLOSED or opened.held:
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
            if now >= opened.deadline:
                await self._asking.ask(branch.site, opened.job.jid, anew=anew)
            return
        if opened.cancelled:
            await sites.cancel(opened.job.jid, [branch.site])
        # After a cancel too, in this order: a site that never had the job then says that it starts nowhere.
        if branch.state is BranchState.SENT and not branch.expected and (opened.cancelled or now < opened.deadline):
            await self._hand_to_site(opened, branch)
        else:
            await self._asking.ask(branch.site, opened.job.jid, anew=anew)

    async def _hand_to_site(self, opened: OpenJob, branch: Branch) -> None:
        sites = self._downlink_of("sites")
        parcel = self._sealer.for_sites(opened, self._leaves(opened, branch.site))
        now = self._clock.monotonic()
        if parcel is None:
            branch.due = now + RESEAL_SECONDS
        elif sites is not None:
            await sites.deliver(parcel, opened.deadline - now, [branch.site])

    def _leaves(self, opened: OpenJob, site: str) -> list[tuple[str, list[str]]]:
        """A site and those behind it, each with the devices that are meant where a seal is made for each."""
        names: dict[str, list[str]] = {site: []}
        target = compile_target(opened.job.tgt, opened.job.tgt_type) if opened.job.sealed else None
        for device in meanable(self._registry.below(site), opened.job.tgt):
            meant = names.setdefault(device.site, [])
            if target is not None and target.matches(device.id, device.grains):
                meant.append(device.id)
        return list(names.items())

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
                for device in meanable(self._registry.below(branch.site), target.tgt)
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
            # Its own word may come later, and go to another master.
            untold(branch.site, [opened.job.jid] if verdict.outcome is Outcome.SITE_DARK else []),
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
            given(opened.job, leaf, device, verdict.outcome, verdict.why, seen=seen, ended=now)
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
