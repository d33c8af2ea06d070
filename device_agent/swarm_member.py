"""One device of a swarm: it joins for itself, with keys of its own, and is then the ``Device`` of the real agent.

It verifies, opens and signs all that concerns it, as if nobody else were in this process. What differs from an agent is
the client underneath, and that nothing of it survives the process.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.device import Device
from device_agent.errors import Refused
from device_agent.guard import Guard
from device_agent.identity import Identity, new_identity
from device_agent.joining import JOIN_USER, LOGIN_REFUSED_SECONDS, Invitation, Joining
from device_agent.lean_mqtt import CLOSED_HERE, LOGIN_REFUSED, LeanConnection, encode_connect
from device_agent.local_host import LocalHost
from device_agent.outbox import MemoryJournal
from device_agent.own import NO_GRAINS_FILE, Own
from device_agent.protocol import limits
from device_agent.protocol.messages import Grains

CONNECT_SECONDS = 20.0
JOIN_AGAIN_CEILING_SECONDS = 60.0
RECONNECT_FIRST_SECONDS = 1.0
RECONNECT_FLOOR_SECONDS = 0.1
RESULTS_KEPT = 16
JIDS_KEPT = 1024
MODELS = ("dome-2", "bullet-4", "turret-8")


class Owner(Protocol):
    """What a device of a swarm needs of the swarm."""

    clock: Clock
    counters: Counters
    randomness: random.Random
    stopping: bool
    invited: Invitation
    keepalive_seconds: int

    def spawn_execution(self, execution: Coroutine[Any, Any, None]) -> None:
        """Run a job."""

    def cache_of(self, device: str) -> str:
        """Where a device keeps files."""

    def note_left(self) -> None:
        """A connection ended because the swarm stops."""

    def note_loss(self, device: str, reason: str) -> None:
        """A connection ended, or was not made."""


def simulated_grains(name: str, number: int, serial: str) -> Grains:
    """What a simulated camera says of itself."""
    return {
        "id": name,
        "os": "Linux",
        "kind": "camera",
        "model": MODELS[number % len(MODELS)],
        "number": number,
        "serial": serial,
        "firmware": f"4.{number % 4}.1",
    }


class Member:
    """One device and its connection, to join over or to work over."""

    __slots__ = (
        "_ask_at",
        "_backoff",
        "_joining",
        "_owner",
        "_refused_at",
        "_settled",
        "connection",
        "device",
        "identity",
        "number",
        "retry_at",
        "serial",
    )

    def __init__(self, owner: Owner, number: int, serial: str) -> None:
        self.identity: Final[Identity] = new_identity()
        self.number: Final = number
        self.serial: Final = serial
        self.device: Device | None = None
        self.connection: LeanConnection | None = None
        self.retry_at: float | None = None
        self._owner = owner
        self._joining: Joining | None = None
        self._settled: asyncio.Future[None] | None = None
        self._ask_at: float | None = None
        self._refused_at: float | None = None
        self._backoff = self._new_backoff(JOIN_AGAIN_CEILING_SECONDS)

    @property
    def connected(self) -> bool:
        """Connected and subscribed, as a device of its site."""
        return self._joining is None and self.connection is not None and self.connection.ready

    @property
    def open(self) -> bool:
        """There is a socket."""
        return self.connection is not None and self.connection.open

    @property
    def welcomed(self) -> bool:
        """The station has registered this connection."""
        return self.device is not None and self.device.welcomed

    async def connect(self) -> None:
        """Open a connection; returns when it is settled: subscribed, or answered, or the next attempt is planned."""
        identity, invited = self.identity, self._owner.invited
        belongs = identity.joined and self._joining is None
        host, port = (identity.host, identity.port) if belongs else (invited.host, invited.port)
        loop = asyncio.get_running_loop()
        # A broker takes few connections at once (mosquitto lets 100 wait); a SYN too many costs a second.
        self._settled = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(self._new_connection, host, port)
                await self._settled
        except OSError as error:
            reason = str(error) or "no answer in time"
            if self._ask_at is not None and self.open:
                return  # It is asked again, on the same connection.
            if self.connection is not None and self.open:
                self.connection.abort(reason)
            else:
                self._lost(reason)
        finally:
            self._settled = None

    def tick(self, now: float) -> None:
        """Once a second."""
        if self.connection is not None:
            self.connection.tick(now)
            if self._ask_at is not None:
                if now >= self._ask_at:
                    self._ask()
            elif self.device is not None:
                self.device.tick(now)

    def stop(self) -> None:
        """Say goodbye and disconnect."""
        if self.device is not None:
            self.device.stop()
        if self.connection is not None:
            self.connection.close()

    def _new_backoff(self, ceiling: float) -> Backoff:
        return Backoff(RECONNECT_FIRST_SECONDS, ceiling, floor=RECONNECT_FLOOR_SECONDS, source=self._owner.randomness)

    def _new_connection(self) -> LeanConnection:
        seconds = self._owner.keepalive_seconds
        on_message: Callable[[str, bytes], None]
        if self.device is not None and self._joining is None:
            greeting = encode_connect(
                self.identity.did, seconds, self.device.will(), self.identity.did, self.identity.password
            )
            subscriptions, on_message = self.device.subscriptions(), self.device.receive
        else:
            self._joining = self._joining or self._new_joining()
            greeting = encode_connect(self.identity.did, seconds, None, JOIN_USER, JOIN_USER)
            subscriptions, on_message = [self._joining.subscription()], self._answered
        self.connection = LeanConnection(
            greeting=greeting,
            subscriptions=subscriptions,
            keepalive_seconds=seconds,
            on_message=on_message,
            on_ready=self._ready,
            on_lost=self._lost,
            on_refused=self._refused,
        )
        return self.connection

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    def _ready(self) -> None:
        if self.device is not None and self._joining is None:
            self._settle()
            self._refused_at = None
            self._backoff.reset()
            self.device.connected()
        else:
            self._ask()

    def _ask(self) -> None:
        if self._joining is not None:
            self._ask_at = self._owner.clock.monotonic() + self._backoff.next()
            self._publish(*self._joining.request())

    def _answered(self, _topic: str, payload: bytes) -> None:
        """An answer to the request. After one that does not accept it is asked again, ever more slowly."""
        if self._joining is None or self.connection is None:
            return
        try:
            if self._joining.judge(payload) is not None:
                self._owner.counters.refused("not_accepted_yet", "", self.serial)
                self._settle()
                return
        except Refused as refused:
            self._refused(refused)
            return
        self._publish(*self._joining.confirmation())
        self._joining = self._ask_at = None
        if self.device is None:
            self._belong()
        # The broker learns the password from the station's word; what comes too early is tried again.
        self._backoff = self._new_backoff(limits.RECONNECT_CEILING_SECONDS)
        self.connection.close()

    def _belong(self) -> None:
        owner = self._owner
        grains = simulated_grains(self.identity.name, self.number, self.serial)
        journal = MemoryJournal(RESULTS_KEPT, JIDS_KEPT)
        guard = Guard(
            self.identity,
            marks=journal.marks(),
            publish=self._publish,
            clock=owner.clock,
            counters=owner.counters,
            randomness=owner.randomness,
        )
        self.device = Device(
            guard,
            grains,
            host=LocalHost(grains, NO_GRAINS_FILE),
            journal=journal,
            spawn=owner.spawn_execution,
            clock=owner.clock,
            counters=owner.counters,
            randomness=owner.randomness,
            own=Own(grains_file=NO_GRAINS_FILE, cache_dir=owner.cache_of(self.identity.name)),
        )

    def _lost(self, reason: str) -> None:
        self._settle()
        self.connection = self._ask_at = None
        if self.device is not None:
            self.device.lost()
        if self._owner.stopping:
            self._owner.note_left()
            return
        now = self._owner.clock.monotonic()
        self._consider_asking(reason, now)
        self.retry_at = now + self._backoff.next()
        if reason != CLOSED_HERE:
            self._owner.note_loss(self.identity.name or self.serial, reason)

    def _consider_asking(self, reason: str, now: float) -> None:
        """Ask for another password when the broker keeps this device out; try ours again when it takes no request."""
        if self.device is None or not reason.startswith(LOGIN_REFUSED):
            return
        if self._joining is not None:
            self._joining = None
        elif self._refused_at is None:
            self._refused_at = now
        elif now - self._refused_at >= LOGIN_REFUSED_SECONDS:
            self._joining = self._new_joining()

    def _new_joining(self) -> Joining:
        owner = self._owner
        return Joining(self.identity, owner.invited, self.serial, MODELS[self.number % len(MODELS)], owner.clock)

    def _refused(self, refused: Refused) -> None:
        self._owner.counters.refused(refused.reason, refused.detail, self.identity.name or self.serial)

    def _publish(self, topic: str, payload: bytes) -> None:
        if self.connection is None or not self.connection.publish(topic, payload):
            self._owner.counters.dropped += 1
