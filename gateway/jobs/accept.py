"""A job is accepted: checked, its expected set decided, and put on disk with its manifest, before anything is sent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from device_agent.clock import Clock
from device_agent.errors import OutstationError, PolicyRefused, Refused, StationFailed, UsageInvalid
from device_agent.protocol import limits, tags
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import (
    Item,
    Job,
    JobDefinition,
    Late,
    OutcomeRecord,
    TargetType,
    check_plain,
    decode_job,
    encode,
    encode_value,
)
from device_agent.protocol.outcomes import State
from device_agent.protocol.targeting import Target, compile_target
from gateway.bus import Bus
from gateway.devices.registry import Registry
from gateway.jobs.close import Closing
from gateway.jobs.expect import Expectation, expect, pages
from gateway.jobs.open_jobs import ABOVE, LOCAL, Branch, OpenJob, OpenJobs, Waiting
from gateway.jobs.record import NOT_RUN_RETCODE, new_event, outcome_statement
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

log = logging.getLogger(__name__)

JOB_BYTES = limits.MESSAGE_BYTES - 8 * 1024
"""A job must fit into a message with its bitmap around it."""

ADD_JOB = "INSERT INTO jobs (jid, body, origin, deadline, accepted) VALUES (?, ?, ?, ?, ?)"
ADD_BRANCH = "INSERT OR IGNORE INTO job_sites (jid, site, state) VALUES (?, ?, ?)"
ADD_PAGE = "INSERT OR REPLACE INTO manifests (jid, link, page, site, ids, final) VALUES (?, ?, ?, ?, ?, ?)"
ADD_DELIVERY = "INSERT INTO deliveries (jid, ids) VALUES (?, ?)"


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator asks for. Times are seconds; None means the default for ``late``."""

    tgt: str
    fun: str
    tgt_type: TargetType = "glob"
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    late: Late = "drop"
    expires_seconds: float | None = None
    run_limit: float | None = None
    user: str | None = None


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
        metrics: Metrics,
        clock: Clock,
        kick: Callable[[], None],
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
        self._metrics = metrics
        self._clock = clock
        self._kick = kick
        self._jids = JidMaker()
        self._accepting: set[str] = set()
        self._forestalled: dict[str, bool] = {}
        self.draining = False

    async def submit(self, request: JobRequest, user: str) -> str:
        """Issue a job here; returns its jid when it is on disk.

        Raises ``UsageInvalid`` for what is wrong with it, ``PolicyRefused`` when the station is full or stopping.
        """
        if self.draining:
            raise PolicyRefused("the station is stopping", error_id="station.stopping", hint="try again in a moment")
        if len(self._open_jobs) >= limits.OPEN_JOBS:
            raise PolicyRefused(
                "too many jobs are open",
                error_id="jobs.busy",
                found=str(len(self._open_jobs)),
                allowed=f"{limits.OPEN_JOBS} open jobs",
                hint="outstation jobs list --open, then jobs cancel",
            )
        target = compile_target(request.tgt, request.tgt_type)
        default = limits.JOB_EXPIRY_SECONDS if request.late == "drop" else limits.JOB_EXPIRY_LATE_SECONDS
        expires_in = default if request.expires_seconds is None else request.expires_seconds
        if not 0 < expires_in <= limits.JOB_EXPIRY_MAX_SECONDS:
            raise UsageInvalid(
                "the expiry is out of range",
                where="expires_seconds",
                found=f"{expires_in:g} s",
                allowed=f"more than 0 and at most {limits.JOB_EXPIRY_MAX_SECONDS:.0f} s",
            )
        now = self._clock.wall()
        draft = Job(
            jid=self._jids.next(now),
            tgt=request.tgt,
            tgt_type=request.tgt_type,
            fun=request.fun,
            arg=request.arg,
            kwarg=request.kwarg,
            user=user,
            issued=now,
            expires=now + expires_in,
            late=request.late,
            run_limit=limits.RUN_LIMIT_SECONDS if request.run_limit is None else request.run_limit,
        )
        body = self._checked(draft)
        await self._take(draft, body, target, LOCAL, expires_in)
        return draft.jid

    async def accept_from_above(self, body: bytes, remaining: float, master: str) -> None:
        """Take a job from a master; one that cannot be taken is refused and counted, a repeated one is ignored."""
        try:
            job = decode_job(body)
            if await self._known(job.jid):
                self._metrics.add("jobs_repeated")
                return
            if len(self._open_jobs) >= limits.OPEN_JOBS or self.draining:
                # Not acknowledged: the master still has it, and sends it again after the next welcome.
                raise Refused("busy", f"job {job.jid}: {len(self._open_jobs)} jobs are open")
            target = compile_target(job.tgt, job.tgt_type)
            await self._take(job, body, target, ABOVE, min(remaining, limits.JOB_EXPIRY_MAX_SECONDS))
        except Refused as refusal:
            self._metrics.refused("uplink", refusal.reason, master, refusal.detail)
        except UsageInvalid as error:
            self._metrics.refused("uplink", "bad_target", master, error.what)
        except StationFailed as error:
            self._metrics.refused("uplink", "store_failed", master, error.what)

    def forestall(self, jid: str) -> None:
        """A cancel came: should its job come after it, it starts nowhere. A bounded number is remembered."""
        self._forestalled[jid] = True
        if len(self._forestalled) > limits.OPEN_JOBS:
            del self._forestalled[next(iter(self._forestalled))]

    async def _known(self, jid: str) -> bool:
        if jid in self._accepting or self._open_jobs.get(jid) is not None:
            return True
        return bool(await self._reader.rows("SELECT 1 FROM jobs WHERE jid = ?", (jid,)))

    def _checked(self, draft: Job) -> bytes:
        """The job as bytes, after the same checks that every receiver will make. Raises ``UsageInvalid``."""
        try:
            body = encode(draft)
            if len(body) > JOB_BYTES:
                raise Refused("oversized", f"{len(body)} bytes with its target and arguments, at most {JOB_BYTES}")
            check_plain(draft.arg)
            decode_job(body)
        except (Refused, OverflowError, UnicodeEncodeError) as refusal:
            raise UsageInvalid(
                "this job cannot be sent",
                error_id="job.invalid",
                found=f"{draft.fun[:130]}: {refusal}",
                allowed="module.function with arguments that JSON can carry",
                hint="outstation run TARGET sys.list_functions",
            ) from None
        return body

    async def _take(self, job: Job, body: bytes, target: Target, origin: str, remaining: float) -> None:
        if job.jid in self._accepting:
            return
        self._accepting.add(job.jid)
        try:
            cancelled = self._forestalled.pop(job.jid, False)
            expected = expect(job, target, self._registry.own(), remaining, cancelled=cancelled)
            opened = self._opened(job, body, origin, expected, remaining)
            opened.cancelled = cancelled
            await self._put_on_disk(opened, expected, remaining)
        finally:
            self._accepting.discard(job.jid)
        self._open_jobs.add(opened)
        self._metrics.add("jobs_accepted")
        log.info("job accepted jid=%s fun=%s origin=%s expected=%d", job.jid, job.fun, origin, opened.expected)
        await self._bus.fire([self._bus.event(tags.job_new(job.jid), new_event(job, expected.ids()))], upward=False)
        await self._closing.check(opened)
        self._kick()

    def _opened(self, job: Job, body: bytes, origin: str, expected: Expectation, remaining: float) -> OpenJob:
        now = self._clock.monotonic()
        opened = OpenJob(
            job=job, body=body, origin=origin, accepted=self._clock.wall(), deadline=now + max(0.0, remaining)
        )
        opened.own_expected = len(expected.present) + len(expected.absent) + len(expected.ended)
        opened.waiting = {device: Waiting(State.DELIVERED, due=now, since=now) for device in expected.present}
        opened.waiting |= {device: Waiting(due=now, since=now) for device in expected.absent}
        opened.branches = {site: Branch(site) for site in self._sites_below()}
        opened.manifest_final = not opened.branches
        opened.counts.update(ended.outcome.value for ended in expected.ended)
        return opened

    async def _put_on_disk(self, opened: OpenJob, expected: Expectation, remaining: float) -> None:
        job, wall = opened.job, self._clock.wall()
        manifest = pages(job.jid, self._site, expected.ids(), self._registry.revision, final=not opened.branches)
        ended = [
            OutcomeRecord(
                jid=job.jid,
                site=self._site,
                id=entry.id,
                fun=job.fun,
                outcome=entry.outcome,
                retcode=NOT_RUN_RETCODE,
                why=entry.why,
                seen=entry.seen,
                ended=wall,
            )
            for entry in expected.ended
        ]
        # The definition goes first, whoever issued the job: a master that takes over from the one that did needs it.
        items: list[Item] = [JobDefinition(opened.body, self._site), *manifest, *ended]
        statements: list[Statement] = [
            (ADD_JOB, [(job.jid, opened.body, opened.origin, wall + remaining, wall)]),
            (ADD_BRANCH, [(job.jid, site, branch.state.value) for site, branch in opened.branches.items()]),
            (
                ADD_PAGE,
                [
                    (job.jid, "", number, page.site, encode_value(page.ids), int(page.final))
                    for number, page in enumerate(manifest)
                ],
            ),
            # They are handed out as soon as this is on disk; after a crash it must be known that they may have it.
            (ADD_DELIVERY, [(job.jid, encode_value(expected.present))] if expected.present else []),
            outcome_statement(ended, ""),
            *self._spool.adding(items),
        ]
        try:
            await self._writer.commit(statements)
        except OutstationError:
            self._metrics.add("jobs_not_accepted_store")
            raise
        self._spool.added()
