"""A job is accepted: checked, its expected set decided, and put on disk with its manifest, before anything is sent."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain

from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import OutstationError, PolicyRefused, Refused, StationFailed, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.links import Parcel, Sealed
from device_agent.protocol.messages import (
    Item,
    Job,
    JobDefinition,
    decode_job,
    encode,
    encode_value,
)
from device_agent.protocol.outcomes import Outcome, State
from device_agent.protocol.several import title
from device_agent.protocol.stations import meanable
from device_agent.protocol.targeting import Target, compile_target
from gateway.bus import Bus
from gateway.devices.policy import Operator
from gateway.devices.registry import Registry
from gateway.jobs.close import Closing
from gateway.jobs.draft import checked, draft_of
from gateway.jobs.expect import Expectation, expect, pages
from gateway.jobs.handed_out import handing_out, over_links
from gateway.jobs.nodegroups import Nodegroups
from gateway.jobs.open_jobs import ABOVE, LOCAL, Branch, OpenJob, OpenJobs, Waiting
from gateway.jobs.permission import FREE, Permission, Ruling
from gateway.jobs.record import accepted_events, given, outcome_statement
from gateway.jobs.refuse import refused_pages, refused_records, shut_below
from gateway.jobs.request import Beside, Offered, Ordered, Returning, SentOn, no_files, no_returners, signed, with_typed
from gateway.jobs.request import JobRequest as JobRequest  # noqa: PLC0414 - whoever submits one finds it here too
from gateway.jobs.room import check_room, no_reason
from gateway.jobs.seal import SEALED_DEVICES, Sealer, is_told_of, public
from gateway.metrics import Metrics
from gateway.spool.budget import refusal_reason
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

log = logging.getLogger(__name__)

ADD_JOB = "INSERT INTO jobs (jid, body, origin, deadline, accepted) VALUES (?, ?, ?, ?, ?)"
ADD_BRANCH = "INSERT OR IGNORE INTO job_sites (jid, site, state) VALUES (?, ?, ?)"
ADD_PAGE = "INSERT OR REPLACE INTO manifests (jid, link, page, site, ids, final) VALUES (?, ?, ?, ?, ?, ?)"
SET_HELD = "UPDATE jobs SET held = 1 WHERE jid = ?"
PUT_SEALS = "INSERT OR REPLACE INTO job_seals (jid, body) VALUES (?, ?)"
ROUNDING_SECONDS = 2.0
"""A proof holds whole seconds: a job lives up to so much longer there than here."""


class Acceptance:
    """Takes jobs from operators here and from masters above, through the same door."""

    def __init__(
        self,
        *,
        site: str,
        open_jobs: OpenJobs,
        registry: Registry,
        sites_below: Callable[[], list[str]],
        spool: Spool,
        writer: Writer,
        reader: Reader,
        bus: Bus,
        closing: Closing,
        sealer: Sealer,
        metrics: Metrics,
        clock: Clock,
        kick: Callable[[], None],
        permission: Permission | None = None,
        offered: Offered | None = None,
        nodegroups: Nodegroups | None = None,
        may_start: Callable[[], None] = no_reason,
    ) -> None:
        self._site = site
        self._open_jobs = open_jobs
        self._registry = registry
        self._sites_below = sites_below
        self._spool = spool
        self._writer = writer
        self._reader = reader
        self._bus = bus
        self._closing = closing
        self._sealer = sealer
        self._metrics = metrics
        self._clock = clock
        self._kick = kick
        self._permission = permission
        self._offered = offered
        self._nodegroups = nodegroups or Nodegroups()
        self._may_start = may_start
        self.jids = JidMaker()
        self._accepting: set[str] = set()
        self._forestalled: dict[str, bool] = {}
        self.made_from: Callable[[Job], Awaitable[str]] = no_files
        """The git commits of the files that a job names."""
        self.returning: Callable[[Returning], SentOn | None] = no_returners
        """What makes sure that the returns of a job are sent elsewhere. Raises ``UsageInvalid``."""
        self.draining = False

    async def submit(
        self,
        request: JobRequest,
        user: str,
        operator: Operator | None = None,
        ordered: Ordered | None = None,
        beside: Beside | None = None,
    ) -> str:
        """Issue a job here; returns its jid when it is on disk. Without an operator the station itself asks.

        What is ``ordered`` by somebody above who signs nothing himself (a Salt master) must have been granted to him.
        What ``beside`` says of its jid is in the same commit.
        Raises ``UsageInvalid`` for what is wrong with it, ``PolicyRefused`` when the station is full, stopping, fenced.
        """
        check_room(self._open_jobs.ours(), draining=self.draining)
        self._may_start()
        request = signed(request)
        sent_on = self.returning(request.ret)
        tgt, tgt_type = self._nodegroups.signed(request.tgt, request.tgt_type, request.delimiter)
        target = compile_target(tgt, tgt_type)
        await self._registry.know(target)
        expires_in = self._life(request)
        # Not the wall clock: devices would take a job for expired that a machine without a clock issued.
        now = self._sealer.now()
        jid = self.jids.next(now) if ordered is None else await self._free(ordered.jid)
        origin = "" if ordered is None else ordered.origin
        draft = draft_of(request, (tgt, tgt_type), user=user, jid=jid, issued=now, seconds=expires_in, origin=origin)
        draft = replace(with_typed(draft, request), commits=await self.made_from(draft))
        body, ruling = checked(draft), FREE
        if operator is not None and self._permission is not None:
            draft, ruling = await self._permission.here(operator, draft, target)
            draft = with_typed(draft, request)
            body, target = checked(draft), compile_target(draft.tgt, draft.tgt_type)
        self._sealer.may_issue(draft)
        if ordered is not None:
            ruling = FREE if self._permission is None else self._permission.above(draft, target)
            ruling = dataclasses.replace(ruling, refused={**ruling.refused, **ordered.refused})
        if not self._sealer.signs_for_sites():
            ruling = shut_below(target, ruling, self._site, self._sites_below(), self._registry.below)
        both = (beside, None if sent_on is None else sent_on.beside)
        more = [each(draft.jid) for each in both if each is not None]
        ruling = dataclasses.replace(ruling, statements=(*ruling.statements, *chain.from_iterable(more)))
        if draft.sealed:
            self._check_few(target)
        returners = () if sent_on is None else sent_on.names
        await self._take(draft, body, target, LOCAL, expires_in, ruling=ruling, returners=returners)
        return draft.jid

    def refusal(self, request: JobRequest, operator: Operator, *, by_name: bool = False) -> OutstationError | None:
        """What ``submit`` would raise for a request now; None for one that it would take. Nothing is kept of it.

        ``by_name``: of the request only the function is known. It is refused if it would be with any arguments and
        any target.
        """
        try:
            request, now = signed(request), self._sealer.now()
            at = self._nodegroups.signed(request.tgt, request.tgt_type, request.delimiter)
            target, seconds = compile_target(*at), self._life(request)
            jid = JidMaker().next(now)
            draft = draft_of(request, at, user=str(operator), jid=jid, issued=now, seconds=seconds, origin="")
            draft = with_typed(draft, request)
            checked(draft)
            if self._permission is not None:
                denied = self._permission.refusal(operator, draft, target, by_name=by_name)
                if denied is not None:
                    return denied
            self._sealer.may_issue(draft, by_name=by_name)
        except (UsageInvalid, PolicyRefused) as error:
            return error
        return None

    def _life(self, request: JobRequest) -> float:
        """Seconds until the job expires. Raises ``UsageInvalid``, and ``PolicyRefused`` beyond what this site may."""
        longest = self._sealer.longest()
        most = limits.JOB_EXPIRY_MAX_SECONDS if longest is None else longest - ROUNDING_SECONDS
        default = limits.JOB_EXPIRY_SECONDS if request.late == "drop" else limits.JOB_EXPIRY_LATE_SECONDS
        expires_in = min(default, most) if request.expires_seconds is None else request.expires_seconds
        if not 0 < expires_in <= limits.JOB_EXPIRY_MAX_SECONDS:
            raise UsageInvalid(
                "the expiry is out of range",
                where="expires_seconds",
                found=f"{expires_in:g} s",
                allowed=f"more than 0 and at most {limits.JOB_EXPIRY_MAX_SECONDS:.0f} s",
            )
        if expires_in > most:
            raise PolicyRefused(
                "a job of this site may not live so long",
                error_id="policy.ttl",
                found=f"{expires_in:g} s",
                allowed=f"at most {most:g} s, as the site's certificate says",
                hint="give a shorter expiry, or run it from a master",
            )
        return expires_in

    def _check_few(self, target: Target) -> None:
        """Each device of a sealed job costs a seal of its own. Raises ``UsageInvalid`` when they are too many."""
        known = meanable(self._registry.everything(), target.tgt)
        meant = sum(1 for device in known if target.matches(device.id, device.grains))
        if meant > SEALED_DEVICES:
            raise UsageInvalid(
                "a sealed job is for few devices",
                where="tgt",
                found=f"{meant} devices",
                allowed=f"at most {SEALED_DEVICES}",
                hint="name fewer devices, or leave out --sealed: the arguments are then encrypted for the site's group",
            )

    async def accept_from_above(self, parcel: Parcel, remaining: float, master: str) -> None:
        """Take a job from a master; one that cannot be taken is refused and counted, a repeated one is ignored.

        A repeat may bring new seals, made since the group key changed.
        """
        try:
            job = decode_job(parcel.definition)
            if await self._known(job.jid, parcel.definition):
                self._metrics.add("jobs_repeated")
                self._given_by(master, job.jid, again=True)
                await self._take_seals(job.jid, parcel)
                return
            self._sealer.check(job, parcel.sealed)
            if self._open_jobs.ours() >= limits.OPEN_JOBS or self.draining:
                # Not acknowledged: the master still has it, and sends it again after the next welcome.
                raise Refused("busy", f"job {job.jid}: {self._open_jobs.ours()} jobs are open")
            target = compile_target(job.tgt, job.tgt_type)
            await self._registry.know(target)
            life = min(remaining, limits.JOB_EXPIRY_MAX_SECONDS)
            ruling = FREE if self._permission is None else self._permission.above(job, target)
            await self._take(job, parcel.definition, target, ABOVE, life, parcel.sealed, ruling)
            self._given_by(master, job.jid, again=False)
        except Refused as refusal:
            self._metrics.refused("uplink", refusal.reason, master, refusal.detail)
        except UsageInvalid as error:
            self._metrics.refused("uplink", "bad_target", master, error.what)
        except StationFailed as error:
            self._metrics.refused("uplink", refusal_reason(error), master, error.found or error.what)

    def _given_by(self, master: str, jid: str, *, again: bool) -> None:
        opened = self._open_jobs.get(jid)
        if opened is not None and opened.origin == ABOVE:
            opened.master = master
        if self._offered is not None:
            self._offered(master, jid, again=again)

    async def _take_seals(self, jid: str, parcel: Parcel) -> None:
        opened = self._open_jobs.get(jid)
        if opened is None or opened.origin != ABOVE or not parcel.sealed or opened.sealed == list(parcel.sealed):
            return
        # Against the job that was taken, which the policy has judged: a repeat may say anything.
        self._sealer.check(opened.job, parcel.sealed)
        renewed = {(entry.site, entry.device) for entry in parcel.sealed}
        kept = [entry for entry in opened.sealed if (entry.site, entry.device) not in renewed]
        sealed = [*kept, *parcel.sealed]
        await self._writer.commit([(PUT_SEALS, [(jid, encode_value(sealed))])])
        opened.sealed = sealed
        opened.sealing.clear()
        opened.look_at = 0.0
        self._kick()

    async def taken(self, jid: str) -> bool:
        """Whether a job has this jid already. Raises ``StoreUnreadable``."""
        return jid in self._accepting or bool(await self._reader.rows("SELECT 1 FROM jobs WHERE jid = ?", (jid,)))

    async def _free(self, jid: str) -> str:
        """A jid that was given. Raises ``UsageInvalid`` when a job has it already."""
        if await self.taken(jid):
            raise UsageInvalid("there is a job with this jid", error_id="job.jid_taken", where="jid", found=jid)
        return jid

    def forestall(self, jid: str) -> None:
        """A cancel came: should its job come after it, it starts nowhere. A bounded number is remembered."""
        self._forestalled[jid] = True
        if len(self._forestalled) > limits.OPEN_JOBS:
            del self._forestalled[next(iter(self._forestalled))]

    async def _known(self, jid: str, definition: bytes) -> bool:
        """Whether this job is here already. Raises ``Refused`` when another one has its jid."""
        if jid in self._accepting:
            return True
        opened = self._open_jobs.get(jid)
        rows = await self._reader.rows("SELECT body FROM jobs WHERE jid = ?", (jid,)) if opened is None else []
        known = [opened.body] if opened is not None else [bytes(row[0]) for row in rows]
        if known and not is_told_of(known[0], definition):
            raise Refused("definition_mismatch", f"job {jid}: another job has this jid here")
        return bool(known)

    async def _take(
        self,
        job: Job,
        body: bytes,
        target: Target,
        origin: str,
        remaining: float,
        sealed: Sequence[Sealed] = (),
        ruling: Ruling = FREE,
        returners: tuple[str, ...] = (),
    ) -> None:
        if job.jid in self._accepting:
            return
        self._accepting.add(job.jid)
        try:
            cancelled = self._forestalled.pop(job.jid, False)
            own, held = meanable(self._registry.own(), target.tgt), ruling.held
            expected = expect(job, target, own, remaining, cancelled=cancelled, held=held, refused=ruling.refused)
            opened = self._opened(job, body, origin, expected, remaining, ruling)
            opened.cancelled = cancelled
            opened.sealed = list(sealed)
            opened.returners = returners
            await self._put_on_disk(opened, expected, remaining, ruling)
        finally:
            self._accepting.discard(job.jid)
        self._open_jobs.add(opened)
        self._metrics.add("jobs_accepted")
        name = title(job.fun, job.arg, job.kwarg)
        log.info("job accepted jid=%s fun=%s origin=%s expected=%d", job.jid, name, origin, opened.expected)
        told = accepted_events(self._bus, public(job), expected.ids(), returners, held=ruling.held)
        await self._bus.fire(told, upward=False)
        await self._closing.check(opened)
        self._kick()

    def _opened(
        self, job: Job, body: bytes, origin: str, expected: Expectation, remaining: float, ruling: Ruling
    ) -> OpenJob:
        now = self._clock.monotonic()
        opened = OpenJob(
            job=job, body=body, origin=origin, accepted=self._clock.wall(), deadline=now + max(0.0, remaining)
        )
        opened.held = ruling.held
        opened.own_expected = len(expected.present) + len(expected.absent) + len(expected.ended) + len(ruling.below)
        for link, names in over_links(expected.present, self._registry).items():
            opened.waiting |= {name: Waiting(State.DELIVERED, due=now, since=now, link=link) for name in names}
        opened.waiting |= {device: Waiting(due=now, since=now) for device in expected.absent}
        opened.branches = {site: Branch(site) for site in self._sites_below() if site not in ruling.shut}
        opened.manifest_final = not opened.branches
        opened.counts.update(ended.outcome.value for ended in expected.ended)
        opened.counts.update(Outcome.REFUSED.value for _ in ruling.below)
        return opened

    async def _put_on_disk(self, opened: OpenJob, expected: Expectation, remaining: float, ruling: Ruling) -> None:
        job, wall, revision = opened.job, self._clock.wall(), self._registry.revision
        manifest = refused_pages(job, ruling, revision)
        manifest += pages(job.jid, self._site, expected.ids(), revision, final=not opened.branches)
        ended = [
            given(job, self._site, entry.id, entry.outcome, entry.why, seen=entry.seen, ended=wall)
            for entry in expected.ended
        ]
        ended += refused_records(job, ruling, wall)
        # The definition goes first, whoever issued the job: a master that takes over from the one that did needs it.
        items: list[Item] = [JobDefinition(encode(public(job)), self._site), *manifest, *ended]
        statements: list[Statement] = [
            (ADD_JOB, [(job.jid, opened.body, opened.origin, wall + remaining, wall)]),
            (SET_HELD, [(job.jid,)] if opened.held else []),
            (PUT_SEALS, [(job.jid, encode_value(opened.sealed))] if opened.sealed else []),
            (ADD_BRANCH, [(job.jid, site, branch.state.value) for site, branch in opened.branches.items()]),
            (
                ADD_PAGE,
                [
                    (job.jid, "", number, page.site, encode_value(page.ids), int(page.final))
                    for number, page in enumerate(manifest)
                ],
            ),
            # They are handed out as soon as this is on disk; after a crash it must be known that they may have it.
            handing_out(job.jid, over_links(expected.present, self._registry)),
            outcome_statement(ended, ""),
            *self._spool.adding(items),
            *ruling.statements,
        ]
        try:
            await self._writer.commit(statements)
        except OutstationError:
            self._metrics.add("jobs_not_accepted_store")
            raise
        self._spool.added()
