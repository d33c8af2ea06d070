"""Both ends of the rope as a test holds them: the real parts on ports in memory, and ends that it plays itself."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import zmq
import zmq.asyncio

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from device_agent.protocol import limits
from upstream import frames
from upstream.curve import CurveKeys
from upstream.frames import DeviceRecord, FromMaster, FromSite
from upstream.ports import KeyState
from upstream.sites import Sites
from upstream.uplink import MasterAddress, Uplink

SECONDS = 10.0
ECHO_SECONDS = 0.1
EPOCH = "0123456789abcdef"

Frame = TypeVar("Frame")

_ENDS = {
    event.to_bytes(2, sys.byteorder)
    for event in (
        zmq.EVENT_DISCONNECTED,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    )
}


def new_keys() -> CurveKeys:
    """Keys that nobody knows yet."""
    public, secret = (part.decode("ascii") for part in zmq.curve_keypair())
    return CurveKeys(public, secret)


class Counted:
    """Implements ``Refusals``."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.peers: set[str] = set()

    def refused(self, link: str, reason: str, peer: str, detail: str = "") -> None:
        assert link == "uplink"
        self.reasons[reason] += 1
        self.peers.add(peer)


class Above(Counted):
    """Whoever holds the master's end: ``Admission``, ``Inbox`` and ``SiteWatch``, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, KeyState] = {}
        self.judged: list[tuple[str, str]] = []
        self.items: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self.records: dict[str, list[DeviceRecord]] = defaultdict(list)
        self.positions: dict[tuple[str, str], list[int]] = {}
        self.up: list[str] = []
        self.down: list[tuple[str, str]] = []
        self.heard: Counter[str] = Counter()
        self.disk = asyncio.Event()
        """Commits wait for it."""
        self.disk.set()
        self.full = False

    def known(self, key: str) -> bool:
        return self.states.get(key) == "accepted"

    async def judge(self, site: str, key: str, address: str) -> KeyState:
        self.judged.append((site, key))
        return self.states.setdefault(key, "pending")

    async def position(self, site: str, epoch: str) -> tuple[int, int]:
        confirmed, revision = self.positions.get((site, epoch), (0, 0))
        return confirmed, revision

    async def commit(self, site: str, epoch: str, items: list[tuple[int, bytes]]) -> int:
        await self._write()
        self.items[site] += items
        self.positions.setdefault((site, epoch), [0, 0])[0] = items[-1][0]
        return items[-1][0]

    async def commit_records(self, site: str, epoch: str, records: list[DeviceRecord]) -> int:
        await self._write()
        self.records[site] += records
        self.positions.setdefault((site, epoch), [0, 0])[1] = records[-1].revision
        return records[-1].revision

    async def site_up(self, site: str, release: str, address: str) -> None:
        self.up.append(site)

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
        self.items: list[tuple[int, bytes]] = []
        self.confirmed: list[int] = []
        self.roll = Rows()
        self.jobs: list[tuple[bytes, float, str]] = []
        self.cancelled: list[str] = []
        self.changed = asyncio.Event()
        self.epochs = [EPOCH]
        self.failing = False
        self._last = 0

    @property
    def epoch(self) -> str:
        return self.epochs[-1]

    def add(self, *bodies: bytes) -> None:
        """Spool items."""
        for body in bodies:
            self._last += 1
            self.items.append((self._last, body))
        self.changed.set()

    async def read(self, after: int) -> list[tuple[int, bytes]]:
        batch: list[tuple[int, bytes]] = []
        size = 0
        for sequence, body in self.items:
            if sequence > after and len(batch) < limits.BATCH_ITEMS:
                size += len(body)
                if batch and size > limits.BATCH_BYTES:
                    break
                batch.append((sequence, body))
        return batch

    async def confirm(self, sequence: int) -> None:
        self.confirmed.append(sequence)
        self.items = [item for item in self.items if item[0] > sequence]

    async def reaches(self, sequence: int) -> bool:
        if self.failing:
            raise StationFailed("the disk does not answer")
        return sequence <= self._last

    async def renew_epoch(self) -> None:
        self.epochs.append(f"{len(self.epochs):016x}")

    async def accept_from_above(self, job: bytes, remaining: float, master: str) -> None:
        self.jobs.append((job, remaining, master))

    async def cancel_from_above(self, jid: str) -> None:
        self.cancelled.append(jid)


def sites_part(
    above: Above, keys: CurveKeys, *, listen: str = "tcp://127.0.0.1:*", clock: Clock | None = None
) -> Sites:
    """The master's end, on a port the kernel chooses."""
    return Sites(
        station="central",
        listen=listen,
        keys=keys,
        admission=above,
        inbox=above,
        watch=above,
        refusals=above,
        clock=clock or Clock(),
    )


def uplink_part(
    below: Below,
    masters: Sequence[MasterAddress],
    *,
    keys: CurveKeys | None = None,
    site: str = "lisbon",
    echo_seconds: float = ECHO_SECONDS,
) -> Uplink:
    """The gateway's end."""
    return Uplink(
        site=site,
        keys=keys or new_keys(),
        masters=masters,
        echo_seconds=echo_seconds,
        outgoing=below,
        roll=below.roll,
        intake=below,
        refusals=below,
        clock=Clock(),
    )


def connected(uplink: Uplink) -> bool:
    """Whether it says so."""
    return bool(uplink.status()["state"] == "connected")


class PlayedSite:
    """A DEALER in the hands of a test: anything can be sent, and what comes back is kept."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self.socket = socket
        self.news: zmq.asyncio.Socket = socket.get_monitor_socket()
        """What becomes of the connection (zmq_socket_monitor(3))."""
        self.heard: list[FromMaster] = []

    async def say(self, *sent: FromSite | bytes) -> None:
        """Each as a message of its own; bytes go as they are."""
        for frame in sent:
            async with asyncio.timeout(SECONDS):
                await self.socket.send(frame if isinstance(frame, bytes) else frames.encode(frame))

    async def hello(self, site: str = "lisbon", epoch: str = EPOCH, **changed: Any) -> None:
        """The first words."""
        fields: dict[str, Any] = {"protocol": frames.PROTOCOL, "site": site, "epoch": epoch, "release": "0", **changed}
        await self.say(frames.SiteHello(**fields))

    async def try_hello(self, site: str = "lisbon") -> None:
        """Speak without having been let in; returns when the connection has ended."""
        with suppress(zmq.Again):
            await self.socket.send(
                frames.encode(frames.SiteHello(protocol=frames.PROTOCOL, site=site, epoch=EPOCH, release="0")),
                flags=zmq.NOBLOCK,
            )
        async with asyncio.timeout(SECONDS):
            while (await self.news.recv_multipart())[0][:2] not in _ENDS:
                pass

    async def hears(self, kind: type[Frame]) -> Frame:
        """The next frame of this kind; others are kept in ``heard``."""
        async with asyncio.timeout(SECONDS):
            while True:
                frame = frames.decode_from_master(await self.socket.recv())
                self.heard.append(frame)
                if isinstance(frame, kind):
                    return frame

    async def hears_nothing_before_the_echo(self) -> list[FromMaster]:
        """What came in front of an echo's answer."""
        before = len(self.heard)
        await self.say(frames.Echo(4711))
        await self.hears(frames.EchoReply)
        return self.heard[before:-1]


@asynccontextmanager
async def played_site(
    address: str, server_key: str, keys: CurveKeys | None = None, *, curve: bool = True
) -> AsyncIterator[PlayedSite]:
    """A connection to a master; without ``curve`` it brings no keys at all."""
    mine = keys or new_keys()
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    # A connection that was refused is not tried again: a test counts what it caused.
    socket.reconnect_ivl = -1
    if curve:
        socket.curve_serverkey = server_key.encode("ascii")
        socket.curve_publickey = mine.public.encode("ascii")
        socket.curve_secretkey = mine.secret.encode("ascii")
    socket.connect(address)
    try:
        yield PlayedSite(socket)
    finally:
        context.destroy(linger=0)


class PlayedMaster:
    """A ROUTER in the hands of a test. Everything that sites say is kept; it answers as it is told."""

    def __init__(self, socket: zmq.asyncio.Socket, keys: CurveKeys) -> None:
        self._socket = socket
        self.keys = keys
        self.heard: list[FromSite] = []
        self.hellos = 0
        self.answers = True
        """Whether it answers at all; a frozen program whose machine still acknowledges answers nothing."""
        self.welcome: FromMaster = frames.SiteWelcome("played", 0, 0)
        self.confirms = True
        self.newest = b""

    @property
    def address(self) -> MasterAddress:
        """As an entry of ``masters``."""
        return MasterAddress(self._socket.getsockopt_string(zmq.LAST_ENDPOINT), self.keys.public)

    def batches(self) -> list[frames.Batch]:
        """What came of the spool."""
        return [frame for frame in self.heard if isinstance(frame, frames.Batch)]

    async def say(self, *sent: FromMaster | bytes | list[bytes]) -> None:
        """To whoever said hello last; bytes go as they are, a list as one message of several frames."""
        for frame in sent:
            parts = frame if isinstance(frame, list) else [frame if isinstance(frame, bytes) else frames.encode(frame)]
            async with asyncio.timeout(SECONDS):
                await self._socket.send_multipart([self.newest, *parts])

    async def run(self) -> None:
        """Hear and answer until cancelled."""
        while True:
            identity, body = await self._socket.recv_multipart()
            frame = frames.decode_from_site(body)
            self.heard.append(frame)
            if isinstance(frame, frames.SiteHello):
                self.newest = identity
                self.hellos += 1
            if not self.answers:
                continue
            match frame:
                case frames.SiteHello():
                    await self.say(self.welcome)
                case frames.Echo(nonce=nonce):
                    await self.say(frames.EchoReply(nonce))
                case frames.Batch(epoch=epoch, items=items) if self.confirms:
                    await self.say(frames.Confirmed(epoch, items[-1][0]))
                case frames.DeviceRecords(records=records) if self.confirms:
                    await self.say(frames.RecordsConfirmed(records[-1].revision))
                case _:
                    pass


@asynccontextmanager
async def played_master(keys: CurveKeys | None = None) -> AsyncIterator[PlayedMaster]:
    """A master that lets everybody in, until it is told otherwise."""
    mine = keys or new_keys()
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.curve_server = True
    socket.curve_secretkey = mine.secret.encode("ascii")
    socket.bind("tcp://127.0.0.1:*")
    master = PlayedMaster(socket, mine)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(master.run())
            try:
                yield master
            finally:
                running.cancel()
    finally:
        context.destroy(linger=0)
