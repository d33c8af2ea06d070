"""The jobs of one device: taken, queued, run once, answered, remembered, and answered again until it is confirmed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from device_agent import loader
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.errors import Refused, UsageInvalid
from device_agent.heard import Delivery
from device_agent.host import Host
from device_agent.outbox import Journal, JournalUnavailable, Place
from device_agent.protocol import limits
from device_agent.protocol.messages import (
    DeviceOutcome,
    EpochWanted,
    Grains,
    Job,
    Reseal,
    Return,
    Running,
    encode,
)
from device_agent.protocol.targeting import compile_target

RETURN_AGAIN_SECONDS = 5.0
RETURN_AGAIN_CEILING_SECONDS = 60.0
RETURNS_PER_TICK = 64
ANNOUNCE_SECONDS = 0.5
EXECUTIONS_COUNTED = 4096
NOT_RUN_RETCODE = 1

SEALED_AGAIN = frozenset({"stale_epoch", "unknown_epoch", "stale_seq", "not_sealed_to_us"})
"""Refusals that say nothing of the job: sealed anew it may run, so it has no outcome yet. Also where another signer
took it over: the number of a job is not used up by whoever has not issued it."""

Send = Callable[[bytes], None]
"""Hands over an encoded message to the station."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class _Held:
    """A job that is here and not finished."""

    __slots__ = ("announced", "deadline", "job", "kid", "running", "seq", "taken")

    def __init__(self, job: Job, delivery: Delivery, taken: float, deadline: float) -> None:
        self.job = job
        self.kid = delivery.kid
        self.seq = delivery.seq
        self.taken = taken
        self.deadline = deadline
        self.running = False
        self.announced = False


class Jobs:
    """What a device does with jobs that are meant for it. Times are monotonic seconds."""

    __slots__ = (
        "_clock",
        "_counters",
        "_held",
        "_host",
        "_journal",
        "_resend",
        "_running",
        "_send",
        "_spawn",
        "draining",
        "executions",
    )

    def __init__(
        self,
        *,
        host: Host,
        journal: Journal,
        send: Send,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self.draining = False
        self.executions: dict[str, int] = {}
        self._host = host
        self._journal = journal
        self._send = send
        self._spawn = spawn
        self._clock = clock
        self._counters = counters
        self._held: dict[str, _Held] = {}
        self._running = 0
        self._resend: dict[str, tuple[float, float]] = {}

    def under_way(self) -> list[str]:
        """The jids that run or wait for their turn."""
        return list(self._held)

    def tick(self, now: float) -> None:
        """Word of jobs that take a while, and returns whose confirmation is late."""
        if self._held:
            for jid, held in self._held.items():
                if not held.announced and now - held.taken >= ANNOUNCE_SECONDS:
                    self._announce(jid)
        if self._resend:
            self._send_returns_due(now)

    def heard_again(self, now: float) -> None:
        """Returns that were on their way when the connection or the station went are due again now."""
        self._resend = dict.fromkeys(self._journal.unconfirmed(), (now, RETURN_AGAIN_SECONDS))

    def deliver(self, delivery: Delivery, name: str, grains: Grains) -> None:
        """A job arrived whose signature holds; ``name`` is the device's own. Whether it is new is asked first."""
        if self.draining:
            return
        jid = sys.intern(delivery.jid)
        if jid in self._held or self._journal.find(jid) is not None:
            self._repeat(jid)
            return
        if self._journal.full:
            self._answer(jid, "", "refused", "busy: too many returns wait for the station's confirmation")
            return
        try:
            meant = compile_target(delivery.tgt, delivery.tgt_type).matches(name, grains)
        except UsageInvalid as error:
            self._answer(jid, "", "refused", f"target_invalid: {error.what}")
            return
        if not meant:
            why = f"not_targeted: {delivery.tgt_type} {delivery.tgt[:200]!r} does not name {name}"
            self._answer(jid, "", "refused", why)
            return
        try:
            job, remaining = delivery.open()
        except Refused as refused:
            self._refuse(jid, refused)
            return
        if len(self._held) - self._running >= limits.DEVICE_QUEUE:
            self._answer(jid, job.fun, "refused", f"busy: {limits.DEVICE_QUEUE} jobs wait already")
        else:
            now = self._clock.monotonic()
            self._held[jid] = _Held(job, delivery, now, now + remaining)
            self._start_next()

    def _refuse(self, jid: str, refused: Refused) -> None:
        self._counters.refused(refused.reason, refused.detail)
        if refused.reason in SEALED_AGAIN:
            if refused.reason == "unknown_epoch":
                self._send(encode(EpochWanted()))
            self._send(encode(Reseal(jid, refused.reason)))
        elif refused.reason == "expired":
            self._answer(jid, "", "expired", refused.detail)
        else:
            self._answer(jid, "", "refused", str(refused))

    def _repeat(self, jid: str) -> None:
        self._counters.repeats += 1
        if jid in self._held:
            self._announce(jid)
            return
        entry = self._journal.find(jid)
        if entry is None or entry.place is Place.STARTED:
            return
        if entry.place is Place.DONE:
            self._send(entry.body)
            return
        forgotten = Return(
            jid=jid,
            fun="",
            outcome="refused",
            retcode=NOT_RUN_RETCODE,
            why="journal_forgot: a job this old is not run, since it may have run already",
            executions=self.executions.get(jid, 0),
        )
        self._send(encode(forgotten))

    def _announce(self, jid: str) -> None:
        self._held[jid].announced = True
        self._send(encode(Running(jid)))

    def cancel(self, jid: str, *, named: bool) -> None:
        """Do not start a job. Without ``named`` it was said to everybody: one that is not known here is no news."""
        held = self._held.get(jid)
        if held is not None and held.running:
            self._announce(jid)
        elif held is not None:
            del self._held[jid]
            self._answer(jid, held.job.fun, "cancelled", "cancelled before it started")
        elif self._journal.find(jid) is not None:
            self._repeat(jid)
        elif named:
            self._answer(jid, "", "cancelled", "cancelled before it arrived")

    def confirm(self, jids: list[str]) -> None:
        """The station has the returns of these jobs."""
        self._journal.confirmed(jids)
        for jid in jids:
            self._resend.pop(jid, None)

    def _start_next(self) -> None:
        if self._running >= limits.DEVICE_RUNNING or self.draining:
            return
        for held in self._held.values():
            if not held.running:
                held.running = True
                self._running += 1
                self._spawn(self._execute(held))
                if self._running >= limits.DEVICE_RUNNING:
                    return

    async def _execute(self, held: _Held) -> None:
        job = held.job
        jid = sys.intern(job.jid)
        try:
            if held.deadline <= self._clock.monotonic():
                self._answer(jid, job.fun, "expired", "the deadline passed while the job waited for its turn")
                return
            if self._journal.find(jid) is not None:
                return
            try:
                await self._journal.started(jid, job.fun, held.kid, held.seq)
            except JournalUnavailable as error:
                self._answer(jid, job.fun, "refused", f"journal_unavailable: {error.what}")
                return
            body = await self._run(job, jid)
            await self._journal.done(jid, body)
            self._send_return(jid, body)
        finally:
            self._held.pop(jid, None)
            self._running -= 1
            if len(self._held) > self._running:
                self._start_next()

    async def _run(self, job: Job, jid: str) -> bytes:
        executions = self._count_execution(jid)
        outcome: DeviceOutcome
        begun = self._clock.monotonic()
        try:
            async with asyncio.timeout(job.run_limit):
                ended = await loader.call(job.fun, self._host, job.arg, job.kwarg)
            outcome, retcode, value, why = ended.outcome, ended.retcode, ended.value, ended.why
        except TimeoutError:
            outcome, retcode, value, why = "timed_out", 1, None, f"stopped after {job.run_limit:g} s"
        return encode(
            Return(
                jid=jid,
                fun=job.fun,
                outcome=outcome,
                retcode=retcode,
                value=value,
                why=why,
                duration=max(0.0, self._clock.monotonic() - begun),
                # What the loader refused was looked up, and did not run.
                executions=0 if outcome == "refused" else executions,
            )
        )

    def _count_execution(self, jid: str) -> int:
        count = self.executions.get(jid, 0) + 1
        self.executions[jid] = count
        if len(self.executions) > EXECUTIONS_COUNTED:
            del self.executions[next(iter(self.executions))]
        return count

    def _answer(self, jid: str, fun: str, outcome: DeviceOutcome, why: str) -> None:
        """The answer to a job that will not run. It is remembered, so that a repeat does not run either."""
        executions = self.executions.get(jid, 0)
        answer = Return(
            jid=jid,
            fun=fun,
            outcome=outcome,
            retcode=NOT_RUN_RETCODE,
            why=why[: limits.WHY_CHARACTERS],
            executions=executions,
        )
        body = encode(answer)
        if self._journal.full:
            self._journal.forgotten(jid)
            self._send(body)
            return
        self._journal.answered(jid, body)
        self._send_return(jid, body)

    def _send_return(self, jid: str, body: bytes) -> None:
        self._resend[jid] = (self._clock.monotonic() + RETURN_AGAIN_SECONDS, RETURN_AGAIN_SECONDS)
        self._send(body)

    def _send_returns_due(self, now: float) -> None:
        due = [jid for jid, (when, _) in self._resend.items() if when <= now]
        for jid in due[:RETURNS_PER_TICK]:
            entry = self._journal.find(jid)
            if entry is None or entry.place is not Place.DONE:
                del self._resend[jid]
                continue
            wait = self._resend[jid][1]
            self._resend[jid] = (now + wait, min(wait * 2, RETURN_AGAIN_CEILING_SECONDS))
            self._send(entry.body)
