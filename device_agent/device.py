"""What one device does with a message: the same in a real agent and in a swarm, whatever carries the bytes.

It owns no task, no timer and no socket. Whoever owns it calls ``receive`` for each message, ``tick`` about once a
second, ``will`` before and ``connected`` after each connection, and gives it a way to publish and to spawn.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Final

from device_agent import __version__
from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.errors import Refused
from device_agent.host import Host
from device_agent.jobs import Jobs, Spawn
from device_agent.outbox import Journal
from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.messages import (
    Beat,
    Cancel,
    Confirm,
    Deliver,
    Gone,
    Grains,
    Hello,
    Welcome,
    decode_downward,
    encode,
)

HELLO_FIRST_SECONDS = 1.0
HELLO_CEILING_SECONDS = 30.0
ROLL_CALL_SECONDS = 1.0

Publish = Callable[[str, bytes], object]


class Device:
    """One device, from its first hello to its last return. Times are monotonic seconds."""

    __slots__ = (
        "_backoff",
        "_beat_at",
        "_beat_seconds",
        "_clock",
        "_connected",
        "_counters",
        "_hello_at",
        "_index",
        "_publish",
        "_randomness",
        "_session",
        "_up",
        "grains",
        "id",
        "jobs",
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
        self.welcomed = False
        self._publish = publish
        self._clock = clock
        self._counters = counters
        self._randomness = randomness
        self._up = topics.device_up(site, device, "")
        self._session = secrets.token_hex(8)
        self._connected = False
        self._index: int | None = None
        self._backoff = Backoff(
            HELLO_FIRST_SECONDS, HELLO_CEILING_SECONDS, floor=HELLO_FIRST_SECONDS, source=randomness
        )
        self._hello_at = 0.0
        self._beat_at = 0.0
        self._beat_seconds = limits.BEAT_SECONDS
        self.jobs = Jobs(
            device, host=host, journal=journal, send=self._send, spawn=spawn, clock=clock, counters=counters
        )

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
            self._send("beat", encode(Beat(self._session, self.jobs.under_way())))
        self.jobs.tick(now)

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
                if self._is_meant(message.bitmap):
                    self.jobs.deliver(message, self.grains)
                else:
                    self._counters.ignored += 1
            elif isinstance(message, Confirm):
                if self._is_meant(message.bitmap):
                    self.jobs.confirm(message.jids)
            elif isinstance(message, Welcome):
                self._welcome(message)
            elif isinstance(message, Cancel):
                if self._is_meant(message.bitmap):
                    named = message.bitmap is not None or topic.startswith(self._up[:-3])
                    self.jobs.cancel(message.jid, named=named)
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
        self.jobs.heard_again(now)
