"""Whoever holds the ends of the rope, in memory: the ports of ``upstream`` without a store behind them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from device_agent.errors import StationFailed
from device_agent.protocol import limits
from device_agent.protocol.links import Parcel
from upstream.fault_frames import SiteFault
from upstream.frames import STREAMS, DeviceRecord, LedgerRow, Stream
from upstream.ports import KeyState

SECONDS = 60.0
EPOCH = "0123456789abcdef"


class Counted:
    """Implements ``Refusals``."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.peers: set[str] = set()

    def refused(self, link: str, reason: str, peer: str, detail: str = "") -> None:
        assert link == "uplink"
        self.reasons[reason] += 1
        self.peers.add(peer)

    def accept_failed(self, door: str, code: int) -> None:
        self.reasons[f"{door} {code}"] += 1


class Above(Counted):
    """Whoever holds the master's end: ``Admission``, ``Inbox`` and ``SiteWatch``, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.passes_on = self.unproven = False
        self.states: dict[str, KeyState] = {}
        self.judged: list[tuple[str, str]] = []
        self.brought: dict[str, tuple[bytes, bytes]] = {}
        """The request and the certificate of each site's newest hello."""
        self.items: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self.ledgers: dict[str, Sequence[LedgerRow]] = {}
        self.records: dict[str, list[DeviceRecord]] = defaultdict(list)
        self.positions: dict[tuple[str, str], dict[Stream, int]] = defaultdict(dict)
        self.revisions: Counter[tuple[str, str]] = Counter()
        self.stories: dict[str, list[bytes]] = defaultdict(list)
        self.unknown: list[tuple[str, str]] = []
        self.up: list[str] = []
        self.down: list[tuple[str, str]] = []
        self.roles: dict[str, bool] = {}
        self.faults: dict[str, list[SiteFault]] = {}
        self.heard: Counter[str] = Counter()
        self.disk = asyncio.Event()
        """Commits wait for it."""
        self.disk.set()
        self.door = asyncio.Event()
        """Whoever says hello waits for it."""
        self.door.set()
        self.full = False

    def known(self, key: str) -> bool:
        return self.states.get(key) == "accepted"

    def revoked(self, key: str) -> bool:
        return False

    async def judge(
        self, site: str, key: str, address: str, request: bytes = b"", certificate: bytes = b""
    ) -> KeyState:
        self.judged.append((site, key))
        self.brought[site] = (request, certificate)
        await self.door.wait()
        return self.states.setdefault(key, "pending")

    async def rows_unproven(self, site: str) -> bool:
        return self.unproven

    async def position(self, site: str, epoch: str) -> tuple[dict[Stream, int], int]:
        return dict(self.positions[site, epoch]), self.revisions[site, epoch]

    async def commit(self, site: str, epoch: str, stream: Stream, items: list[tuple[int, bytes]]) -> int:
        await self._write()
        self.items[site] += items
        self.positions[site, epoch][stream] = items[-1][0]
        return items[-1][0]

    async def keep_ledger(self, site: str, rows: Sequence[LedgerRow]) -> None:
        self.ledgers[site] = rows

    async def commit_records(self, site: str, epoch: str, records: list[DeviceRecord]) -> int:
        await self._write()
        self.records[site] += records
        self.revisions[site, epoch] = records[-1].revision
        return records[-1].revision

    async def commit_story(self, site: str, items: list[bytes]) -> None:
        await self._write()
        self.stories[site] += items

    async def unknown_job(self, site: str, jid: str) -> None:
        await self._write()
        self.unknown.append((site, jid))

    async def site_up(self, site: str, release: str, address: str) -> None:
        self.up.append(site)

    def site_role(self, site: str, active: bool, faults: Sequence[SiteFault] = ()) -> None:
        self.roles[site] = active
        self.faults[site] = list(faults)

    def site_heard(self, site: str) -> None:
        self.heard[site] += 1

    def site_down(self, site: str, why: str) -> None:
        self.down.append((site, why))

    async def _write(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self.disk.wait()
        if self.full:
            raise StationFailed("the disk is full")


class Rows:
    """Implements ``Roll``."""

    def __init__(self) -> None:
        self.rows: list[DeviceRecord] = []
        self.changed = asyncio.Event()

    @property
    def revision(self) -> int:
        return max((row.revision for row in self.rows), default=0)

    def add(self, *rows: DeviceRecord) -> None:
        """Change the registry."""
        self.rows += rows
        self.changed.set()

    async def records_after(self, revision: int) -> list[DeviceRecord]:
        return [row for row in self.rows if row.revision > revision][: limits.REGISTRY_PAGE]


class Below(Counted):
    """Whoever holds the gateway's end: ``Outgoing``, ``JobIntake`` and, in ``roll``, ``Roll``, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[Stream, list[tuple[int, bytes]]] = {stream: [] for stream in STREAMS}
        self.confirmed: list[int] = []
        """Of all streams."""
        self.roll = Rows()
        self.jobs: list[tuple[Parcel, float, str]] = []
        self.cancelled: list[str] = []
        self.changed = asyncio.Event()
        self.epochs = [EPOCH]
        self.failing = False
        self.taking = asyncio.Event()
        """Jobs are taken while it is set; until then whoever brings one waits."""
        self.taking.set()
        self._last: Counter[Stream] = Counter()

    @property
    def epoch(self) -> str:
        return self.epochs[-1]

    @property
    def items(self) -> list[tuple[int, bytes]]:
        """What waits in the stream ``returns``."""
        return self.streams["returns"]

    def add(self, *bodies: bytes, stream: Stream = "returns") -> None:
        """Spool items."""
        for body in bodies:
            self._last[stream] += 1
            self.streams[stream].append((self._last[stream], body))
        self.changed.set()

    async def next_stream(self, sent: Mapping[Stream, int]) -> Stream | None:
        for stream, items in self.streams.items():
            if any(sequence > sent.get(stream, 0) for sequence, _ in items):
                return stream
        return None

    async def read(self, stream: Stream, after: int, most_bytes: int = limits.BATCH_BYTES) -> list[tuple[int, bytes]]:
        batch: list[tuple[int, bytes]] = []
        size = 0
        for sequence, body in self.streams[stream]:
            if sequence > after and len(batch) < limits.BATCH_ITEMS:
                size += len(body)
                if batch and size > most_bytes:
                    break
                batch.append((sequence, body))
        return batch

    async def confirm(self, stream: Stream, sequence: int, master: str) -> None:
        if self.failing:
            raise StationFailed("the disk does not answer")
        self.confirmed.append(sequence)
        self.streams[stream] = [item for item in self.streams[stream] if item[0] > sequence]

    async def reaches(self, positions: Mapping[Stream, int]) -> bool:
        if self.failing:
            raise StationFailed("the disk does not answer")
        return all(sequence <= self._last[stream] for stream, sequence in positions.items())

    async def report(self, master: str) -> list[LedgerRow]:
        return []

    async def went_back(self, why: str) -> None:
        await self.renew_epoch()

    async def renew_epoch(self) -> None:
        self.epochs.append(f"{len(self.epochs):016x}")

    async def accept_from_above(self, parcel: Parcel, remaining: float, master: str) -> None:
        await self.taking.wait()
        self.jobs.append((parcel, remaining, master))

    async def cancel_from_above(self, jid: str) -> None:
        self.cancelled.append(jid)
