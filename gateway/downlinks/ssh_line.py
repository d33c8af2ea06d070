"""The way to one SSH device: its connection while it is of use, how the last tries ended, and whoever works over it."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from asyncssh import SSHClientConnection

from device_agent.clock import Clock
from device_agent.dial import first_connected
from device_agent.errors import OutstationError
from device_agent.host import HostLost
from gateway.devices.ssh_device import SshDevice
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks import ssh_breaker
from gateway.downlinks.ssh_breaker import CLOSED, Breaker, Changed, Failed, Succeeded
from gateway.downlinks.ssh_dial import first_word
from gateway.downlinks.ssh_fence import Fence
from gateway.downlinks.ssh_host import SshHost
from gateway.downlinks.ssh_login import Doorkeeper, Logins
from gateway.downlinks.ssh_pool import Pool
from gateway.downlinks.ssh_reasons import DROPPED, KeyChanged, Unreached, unreached
from gateway.downlinks.ssh_turns import Turns
from gateway.metrics import Metrics

log = logging.getLogger(__name__)

KEEPALIVES: Final = 3
"""Unanswered ones after which a device under a command is taken for hung."""

HOPS: Final = 4
"""Jump hosts on one way, at most."""

HostOver = Callable[[SSHClientConnection, dict[str, Any]], SshHost]
"""A machine over a connection, with its grains, which change in place."""


@dataclass(frozen=True, kw_only=True)
class Ways:
    """What all lines of a site share."""

    clock: Clock
    metrics: Metrics
    turns: Turns
    pool: Pool
    logins: Logins
    connect_seconds: float
    keepalive_seconds: float
    secret: Callable[[str], Secret]
    """What opens a device's door, by its name. Raises ``OutstationError``."""
    met: Callable[[str, str], Awaitable[object]]
    """A device (its name) showed this key, whose fingerprint is pinned."""
    line_of: Callable[[str], Line | None]
    """The line to a device, by its name."""
    host_over: HostOver
    on_lost: Callable[[str], None]
    """A connection (the name of its device) ended by itself."""
    on_judged: Callable[[str, Breaker], None]
    """A try (the name of the device) ended; the breaker as it was before."""
    randomness: random.Random


class Line:
    """Implements ``ssh_pool.Kept`` for one device. ``users`` are those that need the connection, jumps included."""

    __slots__ = (
        "_barred",
        "_connecting",
        "_connection",
        "_doorkeeper",
        "_host",
        "_judged",
        "_jump",
        "_retired",
        "_ways",
        "_workers",
        "awaited",
        "breaker",
        "device",
        "grains",
        "used",
        "users",
    )

    def __init__(self, device: SshDevice, ways: Ways) -> None:
        self.device = device
        self.breaker = CLOSED
        self.grains: dict[str, Any] = {"id": device.name}
        self.awaited: Callable[[], bool] = lambda: False
        """Whether a job restarts the device."""
        self.users = 0
        self.used = 0.0
        self._ways = ways
        self._workers = 0
        self._connecting = asyncio.Lock()
        self._connection: SSHClientConnection | None = None
        self._doorkeeper: Doorkeeper | None = None
        self._host: SshHost | None = None
        self._jump: Line | None = None
        self._retired = False
        self._barred = False
        self._judged = False
        """Whether the end of the last connection was judged."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[SshHost]:
        """The machine, for as long as the caller works on it. Raises ``HostLost`` when there is no way to it.

        Only a command that finished, under a caller that left in peace, clears the failures before it: a login alone
        proves nothing, and a device that hangs up at each command would be logged in to without end.
        """
        connection = await self.enter()
        self._workers += 1
        connection.set_keepalive(self._ways.keepalive_seconds, KEEPALIVES)
        try:
            host = self._host
            assert host is not None
            finished = host.record.finished
            yield host
            if host.record.finished > finished and self._host is host and not connection.is_closed():
                self._judge(Succeeded())
        finally:
            self._workers -= 1
            if not self._workers and self._connection is not None:
                self._connection.set_keepalive(0)
            self.leave()

    async def enter(self) -> SSHClientConnection:
        """The connection, which stays open until ``leave``. Raises ``HostLost``."""
        # Counted from here on, so that it is not closed for being idle when it has just come.
        self.users += 1
        try:
            connection = await self._connected()
        except BaseException:
            self.leave()
            raise
        if self._doorkeeper is not None:
            self._doorkeeper.fence.idle = False
        self._ways.pool.touched(self)
        return connection

    def leave(self) -> None:
        """Whoever entered needs the connection no more."""
        self.users -= 1
        self.used = self._ways.clock.monotonic()
        if self._doorkeeper is not None:
            self._doorkeeper.fence.idle = not self.users
        self._ways.pool.touched(self)
        if self._retired and not self.users:
            self.shut()

    def failed(self, error: Unreached) -> None:
        """What was asked of the device over the connection got no answer: it is of no use any more."""
        if not self._judged:
            self._judge_failed(error)
        self.shut()

    def changed(self) -> None:
        """Somebody changed something: it may be tried at once."""
        self.breaker = ssh_breaker.step(self.breaker, Changed())

    def retire(self, *, at_once: bool) -> None:
        """Another takes its place: close it, or when the last one that works over it has ended."""
        self._retired, self._barred = True, at_once
        if at_once or not self.users:
            self.shut()

    def shut(self) -> None:
        """Close the connection."""
        connection = self._connection
        self._forget()
        if connection is not None:
            connection.close()

    # --------------------------------------------------------------------------------------------------------------

    def _lost(self, doorkeeper: Doorkeeper) -> None:
        if doorkeeper is self._doorkeeper:
            if doorkeeper.fence.broken:
                self._judge_failed(Unreached("flooding", doorkeeper.fence.broken))
            elif self._workers and self._host is not None and not self._host.record.finished:
                self._judge_failed(Unreached("connection_lost", "the device hung up before a command was finished"))
            self._forget()
            self._ways.on_lost(self.device.name)

    def _forget(self) -> None:
        self._connection = self._host = self._doorkeeper = None
        self._ways.pool.dropped(self)
        jump, self._jump = self._jump, None
        if jump is not None:
            jump.leave()

    def _judge(self, event: ssh_breaker.Event) -> None:
        before, self.breaker = self.breaker, ssh_breaker.step(self.breaker, event)
        self._ways.on_judged(self.device.name, before)

    def _judge_failed(self, error: Unreached) -> None:
        self._judged = True
        self._ways.metrics.add("ssh_connects_failed")
        draw = self._ways.randomness.uniform(0.0, 1.0)
        self._judge(Failed(self._ways.clock.monotonic(), error.reason, error.detail, draw, self.awaited()))

    async def _connected(self) -> SSHClientConnection:
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection
            if self._retired:
                raise self._left()
            if not ssh_breaker.may_try(self.breaker, self._ways.clock.monotonic()):
                raise HostLost(self.breaker.why, started=False)
            try:
                connection = await self._connect()
            except Unreached as error:
                self._judge_failed(error)
                raise HostLost(error.what, started=False) from None
            if self._barred:
                self.shut()
                raise self._left()
            self._ways.metrics.add("ssh_connects")
            return connection

    def _left(self) -> HostLost:
        return HostLost(f"{self.device.name} was changed or removed", started=False)

    async def _connect(self) -> SSHClientConnection:
        """Raises ``Unreached``."""
        jump = self._next_hop()
        tunnel = await _entered(jump) if jump is not None else None
        sock = None
        try:
            secret = self._secret()
            # One that does not answer takes neither the place of an open connection nor a turn to log in.
            sock = await self._dialled() if tunnel is None else None
            await self._room()
            try:
                try:
                    connection, doorkeeper = await self._open(secret, sock, tunnel)
                except KeyChanged as changed:
                    connection, doorkeeper = await self._by_another_key(secret, tunnel, changed)
            except BaseException:
                self._ways.pool.gave_up()
                raise
        except BaseException:
            if sock is not None:
                sock.close()
            if jump is not None:
                jump.leave()
            raise
        self._connection, self._doorkeeper, self._jump = connection, doorkeeper, jump
        self._judged = False
        self._host = self._ways.host_over(connection, self.grains)
        self._ways.pool.took(self)
        if doorkeeper.met not in self.device.host_keys:
            await self._tell_met(doorkeeper.met)
        if not self._barred and (self._connection is not connection or connection.is_closed()):
            self._forget()
            raise Unreached("connection_lost", "the device hung up after the login")
        return connection

    async def _room(self) -> None:
        try:
            async with asyncio.timeout(self._ways.connect_seconds):
                await self._ways.pool.room()
        except TimeoutError:
            raise Unreached("busy", f"all {len(self._ways.pool)} connections of this site are in use") from None

    def _secret(self) -> Secret:
        try:
            return self._ways.secret(self.device.name)
        except OutstationError as error:
            raise unreached(error, "connecting", 0.0) from None

    async def _dialled(self) -> socket.socket:
        """A connection on which the device has begun to speak. Raises ``Unreached``."""
        device, seconds = self.device, self._ways.connect_seconds
        sock, doing = None, "connecting"
        try:
            addresses = await self._ways.turns.lookup.addresses(device.host, device.port, seconds)
            async with self._ways.turns.dials, asyncio.timeout(seconds):
                sock = await first_connected(addresses)
                doing = "waiting for its first word"
                await first_word(sock)
        except BaseException as error:
            if sock is not None:
                sock.close()
            if not isinstance(error, OSError):
                raise
            raise unreached(error, doing, seconds) from None
        return sock

    async def _by_another_key(
        self, secret: Secret, tunnel: SSHClientConnection | None, changed: KeyChanged
    ) -> tuple[SSHClientConnection, Doorkeeper]:
        """Ask for the kinds of keys that it did not show, while only a fingerprint is pinned, which names no kind."""
        for kind in changed.others:
            sock = await self._dialled() if tunnel is None else None
            try:
                return await self._open(secret, sock, tunnel, (kind,))
            except BaseException as error:
                if sock is not None:
                    sock.close()
                if not isinstance(error, KeyChanged):
                    raise
        raise changed

    async def _open(
        self,
        secret: Secret,
        sock: socket.socket | None,
        tunnel: SSHClientConnection | None,
        kinds: Sequence[str] = (),
    ) -> tuple[SSHClientConnection, Doorkeeper]:
        device, seconds = self.device, self._ways.connect_seconds
        password = secret.password if device.login == "password" else ""
        doorkeeper = Doorkeeper(device.fingerprints, Fence(self._ways.clock.monotonic), self._lost, password)
        async with self._ways.turns.turn(doubted=self.breaker.failures > 0) as turn:
            try:
                async with asyncio.timeout(seconds):
                    connection = await self._ways.logins.login(
                        device, secret, doorkeeper, sock=sock, tunnel=tunnel, seconds=seconds, kinds=kinds
                    )
            except Exception as error:  # noqa: BLE001 - whatever its bytes make the library raise is how it failed
                flood = doorkeeper.fence.broken
                found = unreached(Unreached("flooding", flood) if flood else error, "logging in", seconds)
                turn.dropped = found.reason in DROPPED
                raise found from None
            turn.made = True
        return connection, doorkeeper

    def _next_hop(self) -> Line | None:
        """The line to the jump host. Raises ``Unreached`` where the jumps lead nowhere, or in a circle."""
        passed = [self.device.name]
        line = self
        while line.device.jump:
            following = self._ways.line_of(line.device.jump)
            if following is None:
                raise Unreached("jump_unknown", f"there is no SSH device {line.device.jump} to reach it through")
            if following.device.name in passed or len(passed) > HOPS:
                raise Unreached("jump_unknown", f"the jump hosts lead in a circle: {', '.join(passed)}")
            passed.append(following.device.name)
            line = following
        return self._ways.line_of(self.device.jump) if self.device.jump else None

    async def _tell_met(self, key: str) -> None:
        try:
            await self._ways.met(self.device.name, key)
        except OutstationError as error:
            log.warning("the host key is not kept, it is asked for again device=%s error=%s", self.device.name, error)


async def _entered(jump: Line) -> SSHClientConnection:
    try:
        return await jump.enter()
    except HostLost as error:
        raise Unreached("jump_unreached", f"through {jump.device.name}: {error.what}") from None
