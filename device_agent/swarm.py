"""Thousands of devices in one process, each with its own connection: for the demo, for load and for rehearsals.

Every device is the ``Device`` of the real agent: it decodes, checks, counts, runs and answers for itself. What differs
is the client underneath (lean enough for ten thousand), and that its journal and outbox live in memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import resource
import signal
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.device import Device
from device_agent.errors import Refused, UsageInvalid
from device_agent.host import LocalHost
from device_agent.lean_mqtt import LeanConnection, encode_connect
from device_agent.outbox import MemoryJournal
from device_agent.parts import Part, leaves
from device_agent.protocol import limits
from device_agent.protocol.messages import Grains, SiteId
from device_agent.signals import handled

log = logging.getLogger(__name__)

CONNECT_SECONDS = 20.0
RECONNECT_FIRST_SECONDS = 1.0
TICK_SLICES = 20
"""The devices' one-second tick is spread over this many slices, so that ten thousand do not tick at once."""

FILES_SPARE = 500
RESULTS_KEPT = 16
JIDS_KEPT = 1024
GOODBYE_SECONDS = 5.0
MODELS = ("dome-2", "bullet-4", "turret-8")
PREFIX_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,99}$(?!\n)"
NOTE = "journal and outbox live in memory"


class SwarmSettings(Struct, frozen=True, kw_only=True):
    """What a swarm can be told."""

    devices: Annotated[int, Meta(ge=1, le=limits.DEVICES_PER_STATION)]
    site: SiteId
    prefix: Annotated[str, Meta(pattern=PREFIX_PATTERN)] = "cam-"
    host: str = "127.0.0.1"
    port: int = 1884
    unix_socket: str | None = None
    username: str | None = None
    password: str | None = None
    keepalive_seconds: int = 60
    connecting: Annotated[int, Meta(ge=1, le=1000)] = 64
    report: str | None = None


def simulated_grains(device: str, number: int) -> Grains:
    """What a simulated camera says of itself."""
    return {
        "id": device,
        "os": "Linux",
        "kind": "camera",
        "model": MODELS[number % len(MODELS)],
        "number": number,
        "serial": f"SN{number:08d}",
        "firmware": f"4.{number % 4}.1",
    }


class Member:
    """One device of a swarm and its connection."""

    __slots__ = ("_backoff", "_settings", "_settled", "_swarm", "connection", "device", "retry_at")

    def __init__(self, swarm: Swarm, settings: SwarmSettings, number: int) -> None:
        name = f"{settings.prefix}{number:05d}"
        grains = simulated_grains(name, number)
        self._swarm = swarm
        self._settings = settings
        self._backoff = Backoff(
            RECONNECT_FIRST_SECONDS, limits.RECONNECT_CEILING_SECONDS, floor=0.1, source=swarm.randomness
        )
        self.connection: LeanConnection | None = None
        self.retry_at: float | None = None
        self._settled: asyncio.Future[None] | None = None
        self.device = Device(
            name,
            settings.site,
            grains,
            host=LocalHost(grains),
            journal=MemoryJournal(RESULTS_KEPT, JIDS_KEPT),
            publish=self._publish,
            spawn=swarm.spawn_execution,
            clock=swarm.clock,
            counters=swarm.counters,
            randomness=swarm.randomness,
        )

    @property
    def connected(self) -> bool:
        """Connected and subscribed."""
        return self.connection is not None and self.connection.ready

    @property
    def open(self) -> bool:
        """There is a socket."""
        return self.connection is not None and self.connection.open

    async def connect(self) -> None:
        """Open a connection; returns when its subscriptions are granted or the next attempt is planned."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        # A broker takes few connections at once (mosquitto lets 100 wait); a SYN too many costs a second.
        self._settled = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if settings.unix_socket is not None:
                    await loop.create_unix_connection(self._new_connection, settings.unix_socket)
                else:
                    await loop.create_connection(self._new_connection, settings.host, settings.port)
                await self._settled
        except OSError as error:
            reason = str(error) or "no answer in time"
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
            self.device.tick(now)

    def stop(self) -> None:
        """Say goodbye and disconnect."""
        self.device.stop()
        if self.connection is not None:
            self.connection.close()

    def _new_connection(self) -> LeanConnection:
        settings = self._settings
        greeting = encode_connect(
            self.device.id, settings.keepalive_seconds, self.device.will(), settings.username, settings.password
        )
        self.connection = LeanConnection(
            greeting=greeting,
            subscriptions=self.device.subscriptions(),
            keepalive_seconds=settings.keepalive_seconds,
            on_message=self.device.receive,
            on_ready=self._ready,
            on_lost=self._lost,
            on_refused=self._refused,
        )
        return self.connection

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    def _ready(self) -> None:
        self._settle()
        self._backoff.reset()
        self.device.connected()

    def _lost(self, reason: str) -> None:
        self._settle()
        self.connection = None
        self.device.lost()
        if self._swarm.stopping:
            self._swarm.note_left()
        else:
            self.retry_at = self._swarm.clock.monotonic() + self._backoff.next()
            self._swarm.note_loss(self.device.id, reason)

    def _refused(self, refused: Refused) -> None:
        self._swarm.counters.refused(refused.reason, refused.detail, self.device.id)

    def _publish(self, topic: str, payload: bytes) -> None:
        if self.connection is None or not self.connection.publish(topic, payload):
            self._swarm.counters.dropped += 1


class Swarm(Part):
    """All the devices, one ticker, and a few workers that connect them."""

    name: ClassVar[str] = "swarm"
    drain_seconds: ClassVar[float] = 10.0

    def __init__(self, settings: SwarmSettings, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.counters = Counters()
        self.randomness = random.Random(os.urandom(16))
        self.stopping = False
        self.members: list[Member] = []
        self._settings = settings
        self._waiting: asyncio.Queue[Member] = asyncio.Queue(maxsize=settings.devices)
        self._losses = 0
        self._began = 0.0
        self._ready = asyncio.Event()
        self._rss_before = 0
        self._leaving = 0
        self._left = asyncio.Event()
        self._executions: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Make every device and begin to connect them. Raises ``UsageInvalid`` when they do not fit."""
        allow_open_files(self._settings.devices)
        self._rss_before = rss_bytes()
        self._began = self.clock.monotonic()
        for number in range(self._settings.devices):
            member = Member(self, self._settings, number)
            self.members.append(member)
            self._waiting.put_nowait(member)
        for number in range(min(self._settings.connecting, self._settings.devices)):
            self.spawn(self._connect_waiting(), f"connect-{number}")
        self.spawn(self._tick_all(), "tick")

    async def drain(self) -> None:
        """Every device says goodbye; then wait until the sockets have taken it."""
        self.stopping = True
        for member in self.members:
            # An execution that ends lets the next job begin, and nobody would end that one.
            member.device.jobs.draining = True
        for execution in list(self._executions):
            execution.cancel()
        self._leaving = sum(member.open for member in self.members)
        for member in self.members:
            member.stop()
        if self._leaving:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._left.wait()

    async def ready(self) -> None:
        """Wait until every device has been connected and welcomed at once."""
        await self._ready.wait()

    def spawn_execution(self, execution: Coroutine[Any, Any, None]) -> None:
        """Run a job of a device in this part's group; ten thousand may run at once."""
        task = self._group.create_task(execution)
        self._executions.add(task)
        task.add_done_callback(self._executions.discard)

    def note_left(self) -> None:
        """A connection ended because the swarm stops."""
        self._leaving -= 1
        if self._leaving <= 0:
            self._left.set()

    def note_loss(self, device: str, reason: str) -> None:
        """A connection ended; the first and each thousandth are logged."""
        self._losses += 1
        if self._losses % 1000 == 1:
            log.warning("connection lost device=%s reason=%r losses=%d", device, reason, self._losses)

    def report(self) -> dict[str, Any]:
        """What the devices did, counted by each for itself."""
        executed: dict[str, dict[str, int]] = {}
        for member in self.members:
            for jid, times in member.device.jobs.executions.items():
                row = executed.setdefault(jid, {"devices": 0, "executions": 0, "most": 0})
                row["devices"] += 1
                row["executions"] += times
                row["most"] = max(row["most"], times)
        rss = rss_bytes()
        return {
            "devices": len(self.members),
            "connected": sum(member.connected for member in self.members),
            "welcomed": sum(member.device.welcomed for member in self.members),
            "executed": executed,
            "repeats_answered_from_journal": self.counters.repeats,
            "refused": dict(self.counters.refusals),
            "ignored_not_in_bitmap": self.counters.ignored,
            "dropped_not_connected": self.counters.dropped,
            "connections_lost": self._losses,
            "rss_bytes": rss,
            "bytes_per_device": max(0, rss - self._rss_before) // max(1, len(self.members)),
            "note": NOTE,
        }

    async def write_report(self) -> None:
        """Write the report to its file, whole or not at all."""
        if self._settings.report is not None:
            text = json.dumps(self.report(), indent=1) + "\n"
            await asyncio.to_thread(_write_whole, Path(self._settings.report), text)

    async def _connect_waiting(self) -> None:
        while True:
            member = await self._waiting.get()
            await member.connect()

    async def _tick_all(self) -> None:
        for turn in count():
            await asyncio.sleep(1.0 / TICK_SLICES)
            now = self.clock.monotonic()
            for member in self.members[turn % TICK_SLICES :: TICK_SLICES]:
                member.tick(now)
                if member.retry_at is not None and now >= member.retry_at:
                    member.retry_at = None
                    self._waiting.put_nowait(member)
            if not self._ready.is_set() and all(member.device.welcomed for member in self.members):
                self._ready.set()
                # These devices stay until the end: walking them all again and again was a quarter of a job's cost.
                gc.collect()
                gc.freeze()
                report = self.report()
                log.info(
                    "swarm ready devices=%d seconds=%.1f rss_bytes=%d bytes_per_device=%d note=%r",
                    report["devices"],
                    self.clock.monotonic() - self._began,
                    report["rss_bytes"],
                    report["bytes_per_device"],
                    NOTE,
                )


async def _report_when_asked(swarm: Swarm, asked: asyncio.Event) -> None:
    while True:
        await asked.wait()
        asked.clear()
        await swarm.write_report()


async def run_swarm(settings: SwarmSettings) -> None:
    """Run a swarm until SIGTERM or SIGINT; SIGUSR1 writes the report now."""
    stop = asyncio.Event()
    report = asyncio.Event()
    with handled({signal.SIGTERM: stop.set, signal.SIGINT: stop.set, signal.SIGUSR1: report.set}):
        swarm = Swarm(settings)
        async with swarm:
            swarm.spawn(_report_when_asked(swarm, report), "report")
            await stop.wait()
            # Before the goodbyes, so that it says how many were connected.
            await swarm.write_report()


def main(settings: SwarmSettings) -> None:
    """Run a swarm in this process, on uvloop where it is installed. Raises ``UsageInvalid`` when it does not fit."""
    try:
        import uvloop  # noqa: PLC0415 - a device does not need it, so it may be missing
    except ImportError:
        run = asyncio.run
    else:
        run = uvloop.run
    try:
        run(run_swarm(settings))
    except BaseExceptionGroup as crashed:
        for error in leaves(crashed):
            if isinstance(error, UsageInvalid):
                raise error from None
        raise


def allow_open_files(devices: int) -> None:
    """Raise this process's limit of open files as far as allowed. Raises ``UsageInvalid`` when that is not enough."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fit = hard - FILES_SPARE
    if hard != resource.RLIM_INFINITY and devices > fit:
        raise UsageInvalid(
            "a swarm of this size needs more open files than this process may have",
            where="--devices",
            found=str(devices),
            allowed=f"at most {max(0, fit)}: the limit is {hard} and {FILES_SPARE} are kept for other uses",
            hint=f"--devices {fit}" if fit > 0 else "ulimit -n 4096",
        )


def rss_bytes() -> int:
    """Memory of this process that is in RAM now (proc(5), statm)."""
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _write_whole(path: Path, text: str) -> None:
    beside = path.with_suffix(path.suffix + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
