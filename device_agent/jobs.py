"""The jobs of one device: taken, queued, run once, answered, remembered, and answered again until it is confirmed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from device_agent import restarts
from device_agent.called import Called
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.ended import Ended, Restart
from device_agent.errors import OutstationError, Refused, UsageInvalid
from device_agent.folder_limits import limited
from device_agent.heard import Delivery
from device_agent.host import Host, HostLost
from device_agent.no_host import NOWHERE
from device_agent.outbox import Journal, JournalUnavailable, Restarting
from device_agent.own import Own, RunningJob
from device_agent.protocol import limits
from device_agent.protocol.messages import (
    DeviceOutcome,
    EpochWanted,
    Grains,
    Job,
    Reseal,
    Running,
    encode,
)
from device_agent.protocol.several import ALONE
from device_agent.protocol.targeting import compile_target
from device_agent.restarts import Lend
from device_agent.returns import Returns, Send
from device_agent.starts import FreeStarts, Starts

ANNOUNCE_SECONDS = 0.5

QUIET_SECONDS = 60.0
"""For so long after a restart of the device was ordered no other job begins, which would die of it."""

SEALED_AGAIN = frozenset({"stale_epoch", "unknown_epoch", "stale_seq", "not_sealed_to_us"})
"""Refusals that say nothing of the job: sealed anew it may run, so it has no outcome yet. Also where another signer
took it over: the number of a job is not used up by whoever has not issued it."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class _Held:
    """A job that is here and not finished."""

    __slots__ = (
        "announced",
        "begun",
        "bound",
        "called",
        "deadline",
        "job",
        "kid",
        "running",
        "seq",
        "stopped",
        "taken",
        "target",
    )

    def __init__(self, job: Job, called: Called, delivery: Delivery, taken: float, deadline: float) -> None:
        self.job = job
        self.called = called
        self.kid = delivery.kid
        self.seq = delivery.seq
        self.target = (delivery.tgt, delivery.tgt_type)
        self.taken = taken
        self.deadline = deadline
        self.running = False
        """It has its turn, and waits for the machine or runs."""
        self.begun = False
        """It runs, and can be cancelled no more."""
        self.announced = False
        self.bound: asyncio.Timeout | None = None
        self.stopped = ""

    @property
    def beside(self) -> bool:
        """Whether it takes no turn from other jobs: it may end what is in the way."""
        return self.job.fun in ALONE

    def shown(self) -> RunningJob:
        """As functions see it."""
        job, called = self.job, self.called
        return RunningJob(job.jid, called.title, called.arg, called.kwarg, *self.target, job.user, os.getpid())


class Jobs:
    """What a device does with jobs that are meant for it, ``width`` at once. Times are monotonic seconds."""

    __slots__ = (
        "_clock",
        "_counters",
        "_held",
        "_journal",
        "_lend",
        "_quiet_until",
        "_restarts",
        "_returns",
        "_running",
        "_send",
        "_spawn",
        "_starts",
        "_width",
        "draining",
        "own",
    )

    def __init__(
        self,
        *,
        lend: Lend,
        journal: Journal,
        send: Send,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
        width: int = limits.DEVICE_RUNNING,
        own: Own | None = None,
        starts: Starts | None = None,
    ) -> None:
        self.draining = False
        self._lend = lend
        self._width = width
        self._journal = journal
        self._send = send
        self._spawn = spawn
        self._clock = clock
        self._counters = counters
        self._starts = starts or FreeStarts()
        self.own = msgspec.structs.replace(own or Own(), jobs=self)
        self._held: dict[str, _Held] = {}
        self._running = 0
        self._restarts: dict[str, Restarting] = {}
        self._quiet_until = 0.0
        self._returns = Returns(journal, send, clock)

    @property
    def executions(self) -> dict[str, int]:
        """How often each of the newest jobs was run by this process."""
        return self._returns.executions

    @property
    def restarting(self) -> bool:
        """Whether a job restarts the device, and it is not known to be there again."""
        return bool(self._restarts)

    def under_way(self) -> list[str]:
        """The jids that run or wait for their turn."""
        return list(self._held)

    def running(self) -> list[RunningJob]:
        """The jobs that run, for the functions that ask for them."""
        return [held.shown() for held in self._held.values() if held.bound is not None]

    def stop(self, jid: str, why: str) -> bool:
        """End a running job as failed; what it started on the machine is killed. False when no such job runs."""
        held = self._held.get(jid)
        if held is None or held.bound is None or held.stopped:
            return False
        held.stopped = why
        held.bound.reschedule(0.0)
        return True

    def resume(self) -> None:
        """Go on waiting for restarts of the device that were under way when the process before this one ended."""
        for jid, restarting in self._journal.restarts().items():
            self._restart_ordered(jid, restarting)
            # It takes its turn again.
            self._running += 1
            self._spawn(self._resume(jid, restarting))

    def tick(self, now: float) -> None:
        """Word of jobs that take a while, and returns whose confirmation is late."""
        if self._held:
            for jid, held in self._held.items():
                if not held.announced and now - held.taken >= ANNOUNCE_SECONDS:
                    self._announce(jid)
            self._start_next()
        self._returns.tick(now)

    def heard_again(self, now: float) -> None:
        """Returns that were on their way when the connection or the station went are due again now."""
        self._returns.heard_again(now)

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
            called = Called(job, self.own.custom.reach)
        except Refused as refused:
            self._refuse(jid, refused)
            return
        now = self._clock.monotonic()
        held = _Held(job, called, delivery, now, now + remaining)
        if len(self._held) - self._running >= limits.DEVICE_QUEUE and not held.beside:
            self._answer(jid, called.title, "refused", f"busy: {limits.DEVICE_QUEUE} jobs wait already")
        else:
            self._held[jid] = held
            if held.beside and not self.draining:
                held.running = True
                self._spawn(self._execute(held))
            else:
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
        if jid in self._held or jid in self._restarts:
            self._announce(jid)
        else:
            self._returns.repeat(jid)

    def _announce(self, jid: str) -> None:
        if jid in self._held:
            self._held[jid].announced = True
        restarting = self._restarts.get(jid)
        self._send(encode(Running(jid, 0.0 if restarting is None else restarting.within)))

    def cancel(self, jid: str, *, named: bool) -> None:
        """Do not start a job. Without ``named`` it was said to everybody: one that is not known here is no news."""
        held = self._held.get(jid)
        if held is not None and held.begun:
            self._announce(jid)
        elif held is not None:
            del self._held[jid]
            self._answer(jid, held.called.title, "cancelled", "cancelled before it started")
        elif self._journal.find(jid) is not None:
            self._repeat(jid)
        elif named:
            self._answer(jid, "", "cancelled", "cancelled before it arrived")

    def confirm(self, jids: list[str]) -> None:
        """The station has the returns of these jobs."""
        self._returns.confirmed(jids)

    def _start_next(self) -> None:
        if self._running >= self._width or self.draining:
            return
        if self._restarts and self._clock.monotonic() < self._quiet_until:
            return
        for held in self._held.values():
            if not held.running:
                held.running = True
                self._running += 1
                self._spawn(self._execute(held))
                if self._running >= self._width:
                    return

    async def _execute(self, held: _Held) -> None:
        fun = held.called.title
        jid = sys.intern(held.job.jid)
        try:
            if not self._may_begin(held, "its turn"):
                return
            begun = self._clock.monotonic()
            try:
                async with self._host_for(held) as host:
                    # Much may have happened on the way there.
                    if not self._may_begin(held, "a connection to the device"):
                        return
                    held.begun = True
                    ended = await self._run_on(host, held, jid)
            except HostLost as error:
                # Before it began: a loss under it is an end like another.
                if self._held.get(jid) is held:
                    self._answer(jid, fun, "unreachable", error.what)
                return
            if ended is not None and ended.restart is not None:
                ended = await self._back(jid, self._restarts[jid])
            if ended is not None:
                executions = self.executions.get(jid, 1)
                await self._returns.ended(jid, fun, ended, executions, self._clock.monotonic() - begun)
        finally:
            if self._held.get(jid) is held:
                del self._held[jid]
            self._restarts.pop(jid, None)
            if not held.beside:
                self._running -= 1
            if self._held:
                self._start_next()

    def _may_begin(self, held: _Held, awaited: str) -> bool:
        """Whether a job may begin after it has waited. What is over its time is answered here."""
        jid = held.job.jid
        if self.draining or self._held.get(jid) is not held or self._journal.find(jid) is not None:
            return False
        if held.deadline <= self._clock.monotonic():
            self._answer(jid, held.called.title, "expired", f"the deadline passed while the job waited for {awaited}")
            return False
        if doubt := self._starts.doubt(held.job):
            self._answer(jid, held.called.title, "unknown", doubt)
            return False
        return True

    def _host_for(self, held: _Held) -> AbstractAsyncContextManager[Host]:
        # What only asks for jobs does not wait for a machine that may be busy with the job it is to end.
        return nullcontext(NOWHERE) if held.beside else self._lend()

    async def _run_on(self, host: Host, held: _Held, jid: str) -> Ended | None:
        """How the job ended; None when it was answered already. One that restarts the device has begun to."""
        job, called = held.job, held.called
        try:
            await self._journal.started(jid, called.title, held.kid, held.seq)
        except JournalUnavailable as error:
            self._answer(jid, called.title, "refused", f"journal_unavailable: {error.what}")
            return None
        self._returns.count_execution(jid)
        try:
            async with asyncio.timeout(job.run_limit) as held.bound:
                own = msgspec.structs.replace(self.own, job=held.shown())
                ended = await called.run(limited(self._starts.host(host, job), job.folders or ()), own)
        except TimeoutError:
            if held.stopped:
                return called.cut("failed", held.stopped)
            return called.cut("timed_out", f"stopped after {job.run_limit:g} s")
        finally:
            held.bound = None
        return ended if ended.restart is None else await self._restart(jid, job, ended, ended.restart)

    async def _restart(self, jid: str, job: Job, ended: Ended, restart: Restart) -> Ended:
        restarting = Restarting(job.fun, restart.boot_id, min(restart.within, job.run_limit))
        try:
            # On disk before it begins: whatever comes back from the restart must know that it was meant.
            await self._journal.restarting(jid, restarting)
            self._restart_ordered(jid, restarting)
            await restart.begin()
        except HostLost as lost:
            if not lost.started:
                return Ended(None, 1, "failed", f"the device was not restarted: {lost.what}"[: limits.WHY_CHARACTERS])
        except (OSError, OutstationError) as error:
            return Ended(None, 1, "failed", f"the device was not restarted: {error}"[: limits.WHY_CHARACTERS])
        return ended

    def _restart_ordered(self, jid: str, restarting: Restarting) -> None:
        self._restarts[jid] = restarting
        self._quiet_until = self._clock.monotonic() + QUIET_SECONDS
        self._announce(jid)

    async def _back(self, jid: str, restarting: Restarting) -> Ended | None:
        """The end of a restart, or None when this process is asked to go first. The machine is let go meanwhile."""
        try:
            return await restarts.back(self._lend, restarting, self._clock, lambda: self.draining)
        finally:
            self._restarts.pop(jid, None)

    async def _resume(self, jid: str, restarting: Restarting) -> None:
        try:
            ended = await self._back(jid, restarting)
            if ended is not None:
                await self._returns.ended(jid, restarting.fun, ended, 1, 0.0)
        finally:
            self._running -= 1
            self._start_next()

    def _answer(self, jid: str, fun: str, outcome: DeviceOutcome, why: str) -> None:
        self._returns.answer(jid, fun, outcome, why)
