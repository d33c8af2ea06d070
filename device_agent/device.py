"""What one device does with a message: the same in a real agent and in a swarm, whatever carries the bytes.

It owns no task, no timer and no socket. Whoever owns it calls ``receive`` for each message, ``tick`` about once a
second, ``will`` before and ``connected`` after each connection, and gives it a way to spawn. Bytes are its guard's:
what reaches this file was proven, and what it says is sealed.
"""

from __future__ import annotations

import logging
import random
import secrets
from contextlib import nullcontext
from typing import Final

import msgspec

from device_agent import __version__
from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.ended import FunctionFailed
from device_agent.errors import Refused, UsageInvalid
from device_agent.events import Handed
from device_agent.heard import Cancelled, Delivery, DeviceGuard, Renamed, SessionLost, SessionOpened
from device_agent.host import Host
from device_agent.jobs import Jobs, Spawn
from device_agent.outbox import Journal
from device_agent.own import Own
from device_agent.pillar import HeldPillar
from device_agent.protocol import limits
from device_agent.protocol.grain_changes import difference
from device_agent.protocol.messages import (
    Beat,
    Confirm,
    Gone,
    Grains,
    Hello,
    Welcome,
    decode_value,
    encode,
    encode_value,
)
from device_agent.protocol.questions import Answer, Question
from device_agent.protocol.target_terms import Known
from device_agent.protocol.targeting import compile_target
from device_agent.questions import Questions

log = logging.getLogger(__name__)

HELLO_FIRST_SECONDS = 1.0
HELLO_CEILING_SECONDS = 30.0


class Device:
    """One device, from its first hello to its last return. Times are monotonic seconds."""

    __slots__ = (
        "_backoff",
        "_beat_at",
        "_beat_seconds",
        "_clock",
        "_connected",
        "_counters",
        "_guard",
        "_hello_at",
        "_journal",
        "_pillar",
        "_questions",
        "_randomness",
        "_spawn",
        "_told",
        "grains",
        "jobs",
        "welcomed",
    )

    def __init__(
        self,
        guard: DeviceGuard,
        grains: Grains,
        *,
        host: Host,
        journal: Journal,
        spawn: Spawn,
        clock: Clock,
        counters: Counters,
        randomness: random.Random,
        own: Own | None = None,
    ) -> None:
        self.grains = grains
        self.welcomed = False
        self._told: bytes | None = None
        self._guard: Final = guard
        self._clock = clock
        self._counters = counters
        self._randomness = randomness
        self._connected = False
        self._journal = journal
        self._backoff = Backoff(
            HELLO_FIRST_SECONDS, HELLO_CEILING_SECONDS, floor=HELLO_FIRST_SECONDS, source=randomness
        )
        self._hello_at = 0.0
        self._beat_at = 0.0
        self._beat_seconds = limits.BEAT_SECONDS
        self._questions = Questions(self._ask)
        self._pillar = HeldPillar(self._questions)
        self._spawn = spawn
        self.jobs = Jobs(
            lend=lambda: nullcontext(host),
            journal=journal,
            send=guard.send,
            spawn=spawn,
            clock=clock,
            counters=counters,
            own=self._own(own or Own()),
        )

    def _own(self, own: Own) -> Own:
        handed = Handed(self._questions, self._clock, secrets.token_bytes(limits.OUTBOX_BYTES))
        events = own.events or handed
        return msgspec.structs.replace(own, station=self._questions, pillar=self._pillar, events=events)

    @property
    def name(self) -> str:
        """The name that targets match."""
        return self._guard.name

    # --- the connection ------------------------------------------------------------------------------------------

    def subscriptions(self) -> list[str]:
        """Where this device listens."""
        return self._guard.subscriptions()

    def will(self) -> tuple[str, bytes]:
        """A connection is about to be made: the topic and payload the broker publishes when it is lost."""
        return self._guard.begin()

    def connected(self) -> None:
        """Connected and subscribed. The hello waits for the session."""
        self._connected = True
        self._guard.connected()

    def lost(self) -> None:
        """The connection ended. What is under way goes on."""
        self._connected = False
        self.welcomed = False
        self._guard.lost()

    def stop(self) -> None:
        """Say goodbye. Jobs that are still running get no return from this process."""
        if self._connected and self._guard.session:
            self._guard.send(encode(Gone(self._guard.session, "stopped")))
        self._connected = False
        self.welcomed = False

    def regrain(self, grains: Grains) -> list[str]:
        """Tell the station these grains at once if they differ from the last hello; return the names that differ.

        The comparison uses the bytes of the last hello. A function may have changed the values of ``grains`` in place.
        """
        self.grains = grains
        if self._told is None or not (changed := difference(decode_value(self._told), grains)):
            return []
        self.welcomed = False
        self._hello_at = self._clock.monotonic()
        if self._connected and self._guard.session:
            # Before the return of the job that changed them: who has that return can use them in a target.
            self._say_hello(self._hello_at)
        return list(changed)

    def tick(self, now: float) -> None:
        """What is due by time: hello, beat, returns without a confirmation, word of jobs that take a while."""
        if not self._connected:
            return
        self._guard.tick(now)
        session = self._guard.session
        if not session:
            return
        if not self.welcomed:
            if now >= self._hello_at:
                self._say_hello(now)
        elif now >= self._beat_at:
            self._beat_at = now + self._beat_seconds
            self._guard.send(encode(Beat(session, self.jobs.under_way(), self._counters.refused_by(self._guard.name))))
        self.jobs.tick(now)

    def _say_hello(self, now: float) -> None:
        self.welcomed = False
        self._hello_at = now + self._backoff.next()
        self._told = encode_value(self.grains)
        self._guard.send(encode(Hello(self._guard.session, __version__, self.grains, *self._journal.oldest())))

    async def _ask(self, question: Question) -> None:
        # Without a session it is dropped, and asked again.
        if self._guard.session:
            self._guard.send(encode(question))

    # --- messages ------------------------------------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes) -> None:
        """One message from the station. Whatever the bytes are, this does not raise."""
        try:
            heard = self._guard.receive(topic, payload)
            if heard is None:
                return
            if isinstance(heard, Delivery):
                self._deliver(heard)
            elif isinstance(heard, Confirm):
                self.jobs.confirm(heard.jids)
            elif isinstance(heard, Answer):
                self._questions.answered(heard)
            elif isinstance(heard, Welcome):
                self._welcome(heard)
            elif isinstance(heard, Cancelled):
                self.jobs.cancel(heard.jid, named=heard.named)
            elif isinstance(heard, SessionOpened):
                self._backoff.reset()
                self._say_hello(self._clock.monotonic())
            elif isinstance(heard, SessionLost):
                self.welcomed = False
            else:
                self._rename(heard)
        except Refused as refused:
            self._counters.refused(refused.reason, refused.detail, self._guard.name)

    def _deliver(self, delivery: Delivery) -> None:
        try:
            by_pillar = compile_target(delivery.tgt, delivery.tgt_type).needs_pillar
        except UsageInvalid:
            by_pillar = False
        if by_pillar:
            self._spawn(self._deliver_by_pillar(delivery))
        else:
            self.jobs.deliver(delivery, self._guard.name, self.grains)

    async def _deliver_by_pillar(self, delivery: Delivery) -> None:
        """What the station gives us may have changed since: it is asked first, and what is known counts without it."""
        try:
            await self._pillar.refresh()
        except FunctionFailed:
            self._counters.refused("pillar_unanswered", "", self._guard.name)
        self.jobs.deliver(delivery, self._guard.name, Known(self.grains, self._pillar.held))

    def _rename(self, _heard: Renamed) -> None:
        self.grains["id"] = self._guard.name
        self.welcomed = False
        self._hello_at = self._clock.monotonic()

    def _welcome(self, message: Welcome) -> None:
        if message.session != self._guard.session:
            raise Refused("stale_welcome", message.session)
        now = self._clock.monotonic()
        self.welcomed = True
        log.debug("welcomed device=%s", self._guard.name)
        self._beat_seconds = message.beat_seconds
        self._beat_at = now + self._randomness.uniform(0.0, message.beat_seconds)
        self._backoff.reset()
        self.jobs.heard_again(now)
