"""Returns are collected: one group commit for all that came in the last moment, and only then is a device confirmed."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from device_agent.parts import Part
from device_agent.protocol import limits
from device_agent.protocol.links import Downlink
from device_agent.protocol.messages import Hello, OutcomeRecord, Return
from device_agent.protocol.outcomes import Outcome, State
from gateway.bus import Bus
from gateway.devices.outboxes import Message, Outboxes
from gateway.devices.registry import Registry
from gateway.devices.ssh_device import LINK as SSH
from gateway.jobs.close import Closing
from gateway.jobs.open_jobs import OpenJob, OpenJobs
from gateway.jobs.record import given, outcome_statement, return_event
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from gateway.store.writer import Writer

log = logging.getLogger(__name__)

UNCOMMITTED = 20_000
UNCOMMITTED_BYTES = 64 * 1024 * 1024
"""Returns held in memory while the disk is busy; beyond it the downlink waits, and the broker behind it."""

CONFIRM_SECONDS = 2.0
STRAY_JOBS = 100
"""Jobs looked up in one go for returns that nobody waits for."""

RETRY_SECONDS = 1.0


@dataclass(slots=True)
class _Arrived:
    record: OutcomeRecord
    opened: OpenJob | None
    message: Message | None = None
    """Where it came from; None for what the station itself decided."""


class Collection(Part):
    """Implements ``Returns`` for the downlinks, and takes the verdicts on silence the same way."""

    name: ClassVar[str] = "collect"

    def __init__(
        self,
        *,
        site: str,
        open_jobs: OpenJobs,
        registry: Registry,
        outboxes: Outboxes,
        downlink_of: Callable[[str], Downlink | None],
        writer: Writer,
        reader: Reader,
        spool: Spool,
        bus: Bus,
        closing: Closing,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._open_jobs = open_jobs
        self._registry = registry
        self._outboxes = outboxes
        self._downlink_of = downlink_of
        self._writer = writer
        self._reader = reader
        self._spool = spool
        self._bus = bus
        self._closing = closing
        self._metrics = metrics
        self._clock = clock
        self._arrived: list[_Arrived] = []
        self._uncommitted_bytes = 0
        self._wake = asyncio.Event()
        self._space = asyncio.Event()
        self._space.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._confirmable: dict[str, set[str]] = defaultdict(set)
        self._confirm_wake = asyncio.Event()

    async def open(self) -> None:
        """Start committing."""
        self.spawn(self._commit_arrived(), "commit")
        self.spawn(self._confirm_devices(), "confirm")

    async def drain(self) -> None:
        """Wait until all that arrived is on disk."""
        await self._idle.wait()

    async def settle(self) -> None:
        """Wait until all that arrived is on disk, and tell the devices."""
        await self._idle.wait()
        await self._send_confirmations()

    def hello(self, device: str, hello: Hello) -> None:
        """A device connected, and says which outbox it has."""
        self._outboxes.hello(device, hello.outbox, hello.oldest)

    def running(self, device: str, jid: str, away: float = 0.0) -> None:
        """The device has the job: it is not sent again before long, only asked after; see ``Running`` for ``away``."""
        self._registry.heard(device)
        opened = self._open_jobs.get(jid)
        waiting = opened.waiting.get(device) if opened is not None else None
        if opened is None or waiting is None:
            return
        now = self._clock.monotonic()
        if waiting.state is not State.RUNNING:
            waiting.state, waiting.since = State.RUNNING, now
        waiting.away = away or waiting.away
        waiting.due = now + limits.RESEND_CEILING_SECONDS
        opened.pulse()

    async def returned(self, device: str, message: Return, size: int) -> None:
        """The device answered. Waits while too much is uncommitted."""
        self._registry.heard(device)
        known = self._registry.own_device(device)
        if known is not None:
            known.answered = known.heard
        opened = self._open_jobs.get(message.jid)
        if opened is not None and device in opened.committing:
            return
        if opened is not None and device not in opened.waiting:
            opened = None
        place = Message(device, message.outbox, message.sequence)
        if opened is None and self._is_repeat(place, message.jid):
            self._metrics.add("returns_repeated")
            self._confirm(message.jid, device)
            return
        record = OutcomeRecord(
            jid=message.jid,
            site=self._site,
            id=device,
            fun=message.fun,
            outcome=Outcome(message.outcome),
            retcode=message.retcode,
            value=message.value,
            why=message.why,
            ended=self._clock.wall(),
            duration=message.duration,
            executions=message.executions,
            retcodes=message.retcodes,
        )
        self._uncommitted_bytes += size
        self._take(_Arrived(record, opened, place))
        if not self._space.is_set():
            await self._space.wait()

    def _is_repeat(self, message: Message, jid: str) -> bool:
        """Whether it is on disk as it is. Whoever names ever other jobs with it is looked into like a stray."""
        if not self._outboxes.knows(message):
            return False
        return self._open_jobs.get(jid) is not None or jid in self._confirmable or len(self._confirmable) < STRAY_JOBS

    def decided(self, opened: OpenJob, device: str, outcome: Outcome, why: str) -> None:
        """The station itself gives an outcome to a silent device."""
        known = self._registry.own_device(device)
        seen = known.last_seen if known else None
        record = given(opened.job, self._site, device, outcome, why, seen=seen, ended=self._clock.wall())
        self._take(_Arrived(record, opened))

    def _take(self, arrived: _Arrived) -> None:
        if arrived.opened is not None:
            arrived.opened.committing.add(arrived.record.id)
        self._arrived.append(arrived)
        self._idle.clear()
        self._wake.set()
        if len(self._arrived) >= UNCOMMITTED or self._uncommitted_bytes >= UNCOMMITTED_BYTES:
            self._space.clear()

    async def _commit_arrived(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            arrived, self._arrived = self._arrived, []
            self._space.set()
            self._uncommitted_bytes = 0
            expected = [entry for entry in arrived if entry.opened is not None]
            stray = [entry for entry in arrived if entry.opened is None]
            records = [entry.record for entry in expected]
            taking = self._outboxes.taking(entry.message for entry in expected if entry.message)
            try:
                await self._writer.commit([outcome_statement(records, ""), *taking, *self._spool.adding(records)])
            except StationFailed:
                # Nobody was confirmed: devices answer again, and verdicts are made again.
                for entry in expected:
                    if entry.opened is not None:
                        entry.opened.committing.discard(entry.record.id)
                self._metrics.add("returns_not_committed", len(arrived))
                if not self._arrived:
                    self._idle.set()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._spool.added()
            self._outboxes.taken()
            await self._after_commit(expected)
            try:
                await self._settle_stray(stray)
            except StationFailed:
                # Not confirmed, so the devices say it again.
                self._metrics.add("stray_returns_not_settled", len(stray))
            if not self._arrived:
                self._idle.set()

    async def _after_commit(self, expected: list[_Arrived]) -> None:
        touched: dict[str, OpenJob] = {}
        for entry in expected:
            opened, record = entry.opened, entry.record
            if opened is None:
                continue
            opened.waiting.pop(record.id, None)
            opened.committing.discard(record.id)
            opened.counts[record.outcome.value] += 1
            touched[record.jid] = opened
            if entry.message is not None:
                self._confirm(record.jid, record.id)
        self._metrics.add("outcomes", len(expected))
        if self._bus.listened:
            self._bus.publish(
                [return_event(entry.record, entry.opened.job if entry.opened else None) for entry in expected]
            )
        for opened in touched.values():
            await self._closing.check(opened)

    async def _settle_stray(self, stray: list[_Arrived]) -> None:
        """Returns nobody waits for: repeats are confirmed again; late ones become events; foreign ones are refused."""
        late = []
        settled: list[_Arrived] = []
        recorded: dict[str, dict[str, str]] = {}
        for entry in stray:
            record = entry.record
            if record.jid not in recorded:
                if len(recorded) >= STRAY_JOBS:
                    # A device that is in earnest says it again.
                    self._metrics.refused("mqtt", "too_many_stray_returns", record.id, f"job {record.jid}")
                    continue
                rows = await self._reader.rows(
                    "SELECT device, outcome FROM outcomes WHERE jid = ? AND site = ?", (record.jid, self._site)
                )
                recorded[record.jid] = dict(rows)
            outcome = recorded[record.jid].get(record.id)
            if outcome is None:
                self._metrics.refused("mqtt", "unexpected_return", record.id, f"job {record.jid}")
            elif outcome == record.outcome.value:
                self._metrics.add("returns_repeated")
            else:
                self._metrics.add("returns_late")
                event = return_event(record, None)
                late.append(self._bus.event(event.tag, {**event.data, "late": True, "recorded": outcome}))
            settled.append(entry)
        await self._bus.fire(late)
        taking = self._outboxes.taking(entry.message for entry in settled if entry.message)
        if taking:
            await self._writer.commit(taking)
            self._outboxes.taken()
        for entry in settled:
            self._confirm(entry.record.jid, entry.record.id)

    def _confirm(self, jid: str, device: str) -> None:
        self._confirmable[jid].add(device)
        self._confirm_wake.set()

    async def _confirm_devices(self) -> None:
        while True:
            await self._confirm_wake.wait()
            # Coalesced, and off the critical path: a device repeats only after several seconds.
            await asyncio.sleep(CONFIRM_SECONDS)
            self._confirm_wake.clear()
            await self._send_confirmations()

    async def _send_confirmations(self) -> None:
        confirmable, self._confirmable = self._confirmable, defaultdict(set)
        by_link: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for jid, devices in confirmable.items():
            for device in sorted(devices):
                known = self._registry.own_device(device)
                if known is not None:
                    # What was done over SSH is confirmed there, also when its agent is back.
                    for link in {known.link, SSH}:
                        by_link[link][jid].append(device)
        for link, answered in by_link.items():
            downlink = self._downlink_of(link)
            if downlink is not None:
                await downlink.confirm(answered)
