"""What one device does with a message: the same in a real agent and in a swarm, whatever carries the bytes.

It owns no task, no timer and no socket. Whoever owns it calls ``receive`` for each message, ``tick`` about once a
second, ``will`` before and ``connected`` after each connection, and gives it a way to publish and to spawn.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from device_agent import __version__, loader
from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.errors import Refused, UsageInvalid
from device_agent.host import Host
from device_agent.outbox import Journal, JournalUnavailable, Place
from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.messages import (
    Beat,
    Cancel,
    Confirm,
    Deliver,
    DeviceOutcome,
    Gone,
    Grains,
    Hello,
    Job,
    Return,
    Running,
    Welcome,
    decode_downward,
    decode_job,
    encode,
)
from device_agent.protocol.targeting import compile_target

log = logging.getLogger(__name__)

HELLO_FIRST_SECONDS = 1.0
HELLO_CEILING_SECONDS = 30.0
ROLL_CALL_SECONDS = 1.0
RETURN_AGAIN_SECONDS = 5.0
RETURN_AGAIN_CEILING_SECONDS = 60.0
RETURNS_PER_TICK = 64
ANNOUNCE_SECONDS = 0.5
EXECUTIONS_COUNTED = 4096
LOG_EVERY = 1000
NOT_RUN_RETCODE = 1

Publish = Callable[[str, bytes], object]
Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(slots=True)
class Counters:
    """What happened to messages; one for all devices of a process."""

    refusals: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    """Deliveries of a job that was known here, answered without running it."""
    ignored: int = 0
    """Deliveries whose bitmap does not name the device."""
    dropped: int = 0
    """Messages that could not be handed over for want of a connection; what matters is sent again."""

    def refused(self, reason: str, detail: str = "", device: str = "") -> None:
        """Count bytes that were not an acceptable message; the first of a reason and each thousandth is logged."""
        self.refusals[reason] += 1
        if self.refusals[reason] % LOG_EVERY == 1:
            log.warning("refused reason=%s device=%s detail=%r", reason, device, detail[:200])


class _Held:
    """A job that is here and not finished."""

    __slots__ = ("announced", "deadline", "job", "running", "taken")

    def __init__(self, job: Job, taken: float, deadline: float) -> None:
        self.job = job
        self.taken = taken
        self.deadline = deadline
        self.running = False
        self.announced = False


class Device:
    """One device, from its first hello to its last return. Times are monotonic seconds."""

    __slots__ = (
        "_backoff",
        "_beat_at",
        "_beat_seconds",
        "_clock",
        "_connected",
        "_counters",
        "_held",
        "_hello_at",
        "_host",
        "_index",
        "_journal",
        "_publish",
        "_randomness",
        "_resend",
        "_running",
        "_session",
        "_spawn",
        "_up",
        "draining",
        "executions",
        "grains",
        "id",
        "site",
        "welcomed",
    )

    def __init__(
        self,
        device: str,
        site: str,
        grains: Grains,
        *,
        host: Host,
        journal: Journal,
        publish: Publish,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
        randomness: random.Random,
    ) -> None:
        self.id: Final = device
        self.site: Final = site
        self.grains = grains
        self.executions: dict[str, int] = {}
        self.welcomed = False
        self.draining = False
        self._host = host
        self._journal = journal
        self._publish = publish
        self._spawn = spawn
        self._clock = clock
        self._counters = counters
        self._randomness = randomness
        self._up = topics.device_up(site, device, "")
        self._session = secrets.token_hex(8)
        self._connected = False
        self._index: int | None = None
        self._held: dict[str, _Held] = {}
        self._running = 0
        self._resend: dict[str, tuple[float, float]] = {}
        self._backoff = Backoff(
            HELLO_FIRST_SECONDS, HELLO_CEILING_SECONDS, floor=HELLO_FIRST_SECONDS, source=randomness
        )
        self._hello_at = 0.0
        self._beat_at = 0.0
        self._beat_seconds = limits.BEAT_SECONDS

    # --- the connection ------------------------------------------------------------------------------------------

    def subscriptions(self) -> list[str]:
        """Where this device listens."""
        return [topics.device_job(self.site, self.id), topics.group_job(self.site), topics.group_ack(self.site)]

    def will(self) -> tuple[str, bytes]:
        """Begin the session of the coming connection: the topic and payload the broker publishes when it is lost."""
        self._session = secrets.token_hex(8)
        return self._up + "gone", encode(Gone(self._session, "lost"))

    def connected(self) -> None:
        """Connected and subscribed. The index waits for this session's welcome: a station may have a new register."""
        self._connected = True
        self._index = None
        self._backoff.reset()
        self._say_hello(self._clock.monotonic())

    def lost(self) -> None:
        """The connection ended. What is under way goes on."""
        self._connected = False
        self.welcomed = False

    def stop(self) -> None:
        """Say goodbye. Jobs that are still running get no return from this process."""
        if self._connected:
            self._send("gone", encode(Gone(self._session, "stopped")))
        self._connected = False
        self.welcomed = False

    def regrain(self, grains: Grains) -> None:
        """The device's facts changed: tell the station at the next tick."""
        self.grains = grains
        self.welcomed = False
        self._hello_at = self._clock.monotonic()

    def tick(self, now: float) -> None:
        """What is due by time: hello, beat, returns without a confirmation, word of jobs that take a while."""
        if not self._connected:
            return
        if not self.welcomed:
            if now >= self._hello_at:
                self._say_hello(now)
        elif now >= self._beat_at:
            self._beat_at = now + self._beat_seconds
            self._send("beat", encode(Beat(self._session, list(self._held))))
        if self._held:
            for jid, held in self._held.items():
                if not held.announced and now - held.taken >= ANNOUNCE_SECONDS:
                    self._announce(jid)
        if self._resend:
            self._send_returns_due(now)

    def _say_hello(self, now: float) -> None:
        self.welcomed = False
        self._hello_at = now + self._backoff.next()
        self._send("hello", encode(Hello(self._session, __version__, self.grains)))

    def _send(self, kind: str, body: bytes) -> None:
        self._publish(self._up + kind, body)

    # --- messages ------------------------------------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes) -> None:
        """One message from the station. Whatever the bytes are, this does not raise."""
        try:
            message = decode_downward(payload)
            if isinstance(message, Deliver):
                self._deliver(message)
            elif isinstance(message, Confirm):
                if self._is_meant(message.bitmap):
                    self._confirm(message.jids)
            elif isinstance(message, Welcome):
                self._welcome(message)
            elif isinstance(message, Cancel):
                unnamed = message.bitmap is None and not topic.startswith(self._up[:-3])
                if self._is_meant(message.bitmap):
                    self._cancel(message.jid, unnamed)
            else:
                self.welcomed = False
                self._backoff.reset()
                self._hello_at = self._clock.monotonic() + self._randomness.uniform(0.0, ROLL_CALL_SECONDS)
        except Refused as refused:
            self._counters.refused(refused.reason, refused.detail, self.id)

    def _is_meant(self, bits: bytes | None) -> bool:
        return bits is None or (self._index is not None and bitmap.has(bits, self._index))

    def _welcome(self, message: Welcome) -> None:
        if message.session != self._session:
            raise Refused("stale_welcome", message.session)
        now = self._clock.monotonic()
        self.welcomed = True
        self._index = message.index
        self._beat_seconds = message.beat_seconds
        self._beat_at = now + self._randomness.uniform(0.0, message.beat_seconds)
        self._backoff.reset()
        # Returns that were on their way when the connection or the station went are due again now.
        self._resend = dict.fromkeys(self._journal.unconfirmed(), (now, RETURN_AGAIN_SECONDS))

    def _deliver(self, message: Deliver) -> None:
        if not self._is_meant(message.bitmap):
            self._counters.ignored += 1
            return
        if self.draining:
            return
        job = decode_job(message.job)
        jid = sys.intern(job.jid)
        if jid in self._held or self._journal.find(jid) is not None:
            self._repeat(jid, job.fun)
            return
        if self._journal.full:
            self._answer(jid, job.fun, "refused", "busy: too many returns wait for the station's confirmation")
            return
        if message.remaining <= 0:
            self._answer(jid, job.fun, "expired", "the deadline had passed when the job arrived")
            return
        try:
            meant = compile_target(job.tgt, job.tgt_type).matches(self.id, self.grains)
        except UsageInvalid as error:
            self._answer(jid, job.fun, "refused", f"target_invalid: {error.what}")
            return
        if not meant:
            why = f"not_targeted: {job.tgt_type} {job.tgt[:200]!r} does not name {self.id}"
            self._answer(jid, job.fun, "refused", why)
        elif len(self._held) - self._running >= limits.DEVICE_QUEUE:
            self._answer(jid, job.fun, "refused", f"busy: {limits.DEVICE_QUEUE} jobs wait already")
        else:
            now = self._clock.monotonic()
            self._held[jid] = _Held(job, now, now + message.remaining)
            self._start_next()

    def _repeat(self, jid: str, fun: str) -> None:
        self._counters.repeats += 1
        if jid in self._held:
            self._announce(jid)
            return
        entry = self._journal.find(jid)
        if entry is None or entry.place is Place.STARTED:
            return
        if entry.place is Place.DONE:
            self._send("ret", entry.body)
            return
        forgotten = Return(
            jid=jid,
            fun=fun,
            outcome="refused",
            retcode=NOT_RUN_RETCODE,
            why="journal_forgot: a job this old is not run, since it may have run already",
            executions=self.executions.get(jid, 0),
        )
        self._send("ret", encode(forgotten))

    def _announce(self, jid: str) -> None:
        self._held[jid].announced = True
        self._send("running", encode(Running(jid)))

    def _cancel(self, jid: str, unnamed: bool) -> None:
        held = self._held.get(jid)
        if held is not None and held.running:
            self._announce(jid)
        elif held is not None:
            del self._held[jid]
            self._answer(jid, held.job.fun, "cancelled", "cancelled before it started")
        elif self._journal.find(jid) is not None:
            self._repeat(jid, "")
        elif not unnamed:
            self._answer(jid, "", "cancelled", "cancelled before it arrived")

    def _confirm(self, jids: list[str]) -> None:
        self._journal.confirmed(jids)
        for jid in jids:
            self._resend.pop(jid, None)

    # --- jobs ----------------------------------------------------------------------------------------------------

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
                await self._journal.started(jid, job.fun)
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
                executions=executions,
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
            self._send("ret", body)
            return
        self._journal.answered(jid, body)
        self._send_return(jid, body)

    def _send_return(self, jid: str, body: bytes) -> None:
        self._resend[jid] = (self._clock.monotonic() + RETURN_AGAIN_SECONDS, RETURN_AGAIN_SECONDS)
        self._send("ret", body)

    def _send_returns_due(self, now: float) -> None:
        due = [jid for jid, (when, _) in self._resend.items() if when <= now]
        for jid in due[:RETURNS_PER_TICK]:
            entry = self._journal.find(jid)
            if entry is None or entry.place is not Place.DONE:
                del self._resend[jid]
                continue
            wait = self._resend[jid][1]
            self._resend[jid] = (now + wait, min(wait * 2, RETURN_AGAIN_CEILING_SECONDS))
            self._send("ret", entry.body)
