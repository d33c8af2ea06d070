"""A Salt master made by hand on real sockets: it lets in, publishes and answers, and does so wrongly when told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq
import zmq.asyncio

from device_agent.errors import Refused, StationFailed
from device_agent.parts import Part
from tests.peers.salt_double import SaltDouble
from tests.peers.waiting import until
from upstream.salt import wire
from upstream.salt.order import SaltOrder
from upstream.salt.ports import SaltAbove

LOOPBACK = "127.0.0.1"


class PlayedMaster(Part):
    """Listens on free ports of loopback while it is entered."""

    name = "played-master"

    def __init__(self, name: str = "master") -> None:
        self.double = SaltDouble(name)
        self.asked: Counter[str] = Counter()
        """What was asked, by command."""
        self.last = ""
        """The command of the last one."""
        self.loads: list[dict[str, Any]] = []
        """What was asked encrypted, whole."""
        self.standing: object = None
        """What it says of the gateway's key: True pending, False rejected; None: it lets it in."""
        self.answer: Callable[[dict[str, Any]], Any] = lambda load: None
        self.bare: Callable[[dict[str, Any]], bytes | None] = lambda load: None
        """What it answers without its usual box, as a pillar is."""
        self.bend_reply: Callable[[bytes], bytes | None] = lambda reply: reply
        """Changes what goes out; None: it stays silent."""
        self.slow: dict[str, asyncio.Event] = {}
        """Commands that it answers only when this is set."""

    async def open(self) -> None:
        self._context = zmq.asyncio.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._publisher = self._context.socket(zmq.XPUB)
        self.port = self._router.bind_to_random_port(f"tcp://{LOOPBACK}")
        self.double.publish_port = self._publisher.bind_to_random_port(f"tcp://{LOOPBACK}")
        self.spawn(self._serve(), "serve")

    async def close(self) -> None:
        self._context.destroy(linger=0)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    async def subscribed(self) -> None:
        """Return when somebody has said all that it wants to hear."""
        async with asyncio.timeout(40):
            heard: set[bytes] = set()
            while not heard >= {b"\x01broadcast", b"\x01syndic", b"\x01\x84"}:
                heard.add(await self._publisher.recv())

    async def publishes_anew(self) -> None:
        """Close the line to whoever listens, and listen for them again at the same place."""
        self._publisher.close(linger=0)
        self._publisher = self._context.socket(zmq.XPUB)

        def bound() -> bool:
            with contextlib.suppress(zmq.ZMQError):
                self._publisher.bind(f"tcp://{LOOPBACK}:{self.double.publish_port}")
                return True
            return False

        await until(bound, what="the port is free again")

    async def send(self, *frames: bytes) -> None:
        """Publish these bytes."""
        await self._publisher.send_multipart(list(frames))

    async def publish(self, load: Mapping[str, Any]) -> None:
        await self.send(self.double.publish(load))

    async def _serve(self) -> None:
        while True:
            identity, *_, request = await self._router.recv_multipart()
            reply = self.bend_reply(self._reply(request))
            later = self.slow.get(self.last)
            if reply is not None and later is not None:
                self.spawn(self._send_later(later, identity, reply), "later")
            elif reply is not None:
                await self._router.send_multipart([identity, b"", reply])

    async def _send_later(self, later: asyncio.Event, identity: bytes, reply: bytes) -> None:
        await later.wait()
        await self._router.send_multipart([identity, b"", reply])

    def _reply(self, request: bytes) -> bytes:
        outer = wire.unpack(request)
        self.last = "_auth"
        if outer[b"enc"] == b"clear":
            self.asked["_auth"] += 1
            if self.standing is not None:
                return self.double.says(request, self.standing)
            return self.double.accepts(request)
        try:
            load = wire.texts(wire.unpack(self.double.session.open(outer[b"load"])))
        except Refused:
            self.asked["bad load"] += 1
            return wire.pack("bad load")
        self.last = load["cmd"]
        self.asked[self.last] += 1
        self.loads.append(load)
        if (bare := self.bare(load)) is not None:
            return bare
        return wire.pack(self.double.session.seal(wire.pack(self.answer(load)), load["nonce"]))


class KeptOrders:
    """Implements ``Orders`` in memory."""

    def __init__(self) -> None:
        self.begun = 0
        self.taken: list[tuple[SaltOrder, str]] = []
        self.free = asyncio.Event()
        """While it is not set, the next one is being written."""
        self.free.set()
        self.broken = False

    async def take(self, order: SaltOrder, master: str) -> bool:
        self.begun += 1
        await self.free.wait()
        if not self.broken:
            self.taken.append((order, master))
        return not self.broken

    @property
    def jids(self) -> list[str]:
        return [order.jid for order, _ in self.taken]


class SerialsInMemory:
    """Implements ``KeptSerials``; ``broken`` keeps nothing."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.broken = False

    async def last(self, key: str) -> int | None:
        return self.kept.get(key)

    async def keep(self, key: str, serial: int, master: str) -> None:
        assert master
        if self.broken:
            raise StationFailed("the disk is full")
        self.kept[key] = serial


class QuietFeed:
    """Implements ``Feed``: keeps what it is offered, and tells nothing."""

    def __init__(self) -> None:
        self.above: dict[str, SaltAbove] = {}
        self.runs: Counter[str] = Counter()
        self.active_ones: list[str] = []
        self.fail: list[Exception] = []

    async def run(self, above: SaltAbove, master: str) -> None:
        self.runs[master] += 1
        self.above[master] = above
        if self.fail:
            raise self.fail.pop()
        await asyncio.Event().wait()

    def active(self, master: str, active: bool) -> None:
        if active:
            self.active_ones.append(master)
        elif master in self.active_ones:
            self.active_ones.remove(master)

    async def emptied(self, master: str) -> None:
        return


class SaltRefusals:
    """Implements ``Refusals``."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.details: list[str] = []

    def refused(self, link: str, reason: str, peer: str, detail: str = "") -> None:
        assert link == "salt"
        assert peer.startswith((LOOPBACK, "localhost"))
        self.reasons[reason] += 1
        self.details.append(detail)


def jid(number: int) -> str:
    """The number-th job id of a test."""
    return f"20261123220000{number:06d}"


def ping(number: int, **more: object) -> dict[str, Any]:
    """What a master publishes for ``salt '*' test.ping``."""
    load = {
        "fun": "test.ping",
        "arg": [],
        "tgt": "*",
        "tgt_type": "glob",
        "jid": jid(number),
        "ret": "",
        "user": "root",
    }
    return load | more


def ids_of(load: Mapping[str, Any]) -> Sequence[str]:
    """Whose answers a request brings."""
    return [device for entry in load["load"] for device in entry["return"]]
