"""Thousands of devices in one process, each with its own connection: for the demo, for load and for rehearsals.

Every device is the ``Device`` of the real agent, with keys of its own: it joins, verifies, opens, counts, runs, answers
and signs for itself. What differs is the client underneath (lean enough for ten thousand), and that its identity, its
journal and its outbox live in memory.
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
import tempfile
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.errors import UsageInvalid
from device_agent.joining import invited_by_token
from device_agent.parts import Part, leaves
from device_agent.protocol import limits
from device_agent.signals import handled
from device_agent.swarm_member import Member
from device_agent.token_file import parse_token

log = logging.getLogger(__name__)

TICK_SLICES = 20
"""The devices' one-second tick is spread over this many slices, so that ten thousand do not tick at once."""

FILES_SPARE = 500
GOODBYE_SECONDS = 5.0
PREFIX_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,55}$(?!\n)"
NOTE = "identity, journal and outbox live in memory"


class SwarmSettings(Struct, frozen=True, kw_only=True):
    """What a swarm can be told. ``prefix`` and a number are the serial of each device."""

    devices: Annotated[int, Meta(ge=1, le=limits.DEVICES_PER_STATION)]
    token: str
    prefix: Annotated[str, Meta(pattern=PREFIX_PATTERN)] = "cam-"
    keepalive_seconds: int = 60
    connecting: Annotated[int, Meta(ge=1, le=1000)] = 64
    report: str | None = None
    cache_dir: str | None = None


class Swarm(Part):
    """All the devices, one ticker, and a few workers that connect them."""

    name: ClassVar[str] = "swarm"
    drain_seconds: ClassVar[float] = 10.0

    def __init__(self, settings: SwarmSettings, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.counters = Counters()
        self.randomness = random.Random(os.urandom(16))
        self.stopping = False
        self.invited = invited_by_token(parse_token(settings.token))
        self.keepalive_seconds = settings.keepalive_seconds
        self._folder: tempfile.TemporaryDirectory[str] | None = None
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
            member = Member(self, number, f"{self._settings.prefix}{number:05d}")
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
            if member.device is not None:
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
        """Wait until every device has joined, and has been connected and welcomed at once."""
        await self._ready.wait()

    async def close(self) -> None:
        """Remove what its devices keep, where nobody said a place for it."""
        if self._folder is not None:
            await asyncio.to_thread(self._folder.cleanup)

    def cache_of(self, device: str) -> str:
        """Where a device keeps files."""
        if self._settings.cache_dir is not None:
            return f"{self._settings.cache_dir}/{device}"
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="outstation-swarm-")
        return f"{self._folder.name}/{device}"

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
        devices = [member.device for member in self.members if member.device is not None]
        for device in devices:
            for jid, times in device.jobs.executions.items():
                row = executed.setdefault(jid, {"devices": 0, "executions": 0, "most": 0})
                row["devices"] += 1
                row["executions"] += times
                row["most"] = max(row["most"], times)
        rss = rss_bytes()
        return {
            "devices": len(self.members),
            "joined": len(devices),
            "connected": sum(member.connected for member in self.members),
            "welcomed": sum(member.welcomed for member in self.members),
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
            if not self._ready.is_set() and all(member.welcomed for member in self.members):
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
