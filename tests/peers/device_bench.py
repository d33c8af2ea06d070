"""One device with everything around it made of paper: no socket, no journal file, no proofs, a clock moved by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from msgspec import Struct, msgpack

from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.device import Device
from device_agent.ended import Ended
from device_agent.errors import Refused
from device_agent.heard import Cancelled, Delivery, Heard, SessionLost, SessionOpened
from device_agent.host import Host
from device_agent.local_host import LocalHost
from device_agent.outbox import MemoryJournal
from device_agent.own import Own
from device_agent.protocol import bitmap
from device_agent.protocol.messages import (
    Confirm,
    Hello,
    Job,
    Upward,
    Welcome,
    decode_bounded,
    decode_job,
    decode_upward,
    encode,
    encode_value,
)
from device_agent.trust.reach import Reach

GROUP = "group"
MINE = "mine"
INDEX = 7
KID = b"a signer"
SESSION = "0123456789abcdef"


class HandClock(Clock):
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Deliver(Struct, frozen=True, tag="deliver"):
    """A job as paper: nobody signed it. ``refusal`` is what comes of opening it."""

    job: bytes
    remaining: float = 300.0
    bitmap: bytes | None = None
    refusal: str = ""


class Cancel(Struct, frozen=True, tag="cancel"):
    """A cancellation as paper."""

    jid: str
    bitmap: bytes | None = None


class Opened(Struct, frozen=True, tag="opened"):
    """A session begins."""

    session: str = SESSION


class Lost(Struct, frozen=True, tag="lost"):
    """The station does not know the session."""


Paper = Deliver | Cancel | Confirm | Welcome | Opened | Lost


class PaperDelivery(Delivery):
    """A job that nobody signed."""

    def __init__(self, job: Job, remaining: float, refusal: str) -> None:
        super().__init__(job.jid, job.tgt, job.tgt_type, KID, int(job.jid))
        self._job = job
        self._remaining = remaining
        self._refusal = refusal

    def open(self) -> tuple[Job, float]:
        if self._refusal:
            raise Refused(self._refusal, "says the test")
        if self._remaining <= 0:
            raise Refused("expired", "the deadline had passed when the job arrived")
        return self._job, self._remaining


class PaperGuard:
    """Implements ``DeviceGuard`` without any proof."""

    def __init__(self, counters: Counters) -> None:
        self.name = "cam-7"
        self.session = ""
        self.sent: list[Upward] = []
        self._counters = counters
        self._decoder: msgpack.Decoder[Paper] = msgpack.Decoder(Paper)

    def subscriptions(self) -> list[str]:
        return [MINE, GROUP]

    def begin(self) -> tuple[str, bytes]:
        return "bye", b""

    def connected(self) -> None:
        pass

    def lost(self) -> None:
        self.session = ""

    def tick(self, now: float) -> None:
        pass

    def receive(self, topic: str, payload: bytes) -> Heard | None:
        paper = decode_bounded(self._decoder, payload)
        bits = getattr(paper, "bitmap", None)
        if bits is not None and not bitmap.has(bits, INDEX):
            self._counters.ignored += 1
            return None
        match paper:
            case Deliver():
                return PaperDelivery(decode_job(paper.job), paper.remaining, paper.refusal)
            case Cancel():
                return Cancelled(paper.jid, named=topic == MINE or bits is not None)
            case Opened():
                self.session = paper.session
                return SessionOpened()
            case Lost():
                self.session = ""
                return SessionLost()
            case Confirm() | Welcome():
                return paper

    def send(self, body: bytes) -> None:
        self.sent.append(decode_upward(body))


class Bench:
    """A device with everything around it made of paper."""

    def __init__(self, group: asyncio.TaskGroup, journal: MemoryJournal) -> None:
        self.group = group
        self.journal = journal
        self.clock = HandClock()
        self.counters = Counters()
        self.guard = PaperGuard(self.counters)
        self.tasks: list[asyncio.Task[None]] = []
        grains = {"id": "cam-7", "kind": "camera"}
        self.device = Device(
            self.guard,
            grains,
            host=LocalHost(grains),
            journal=journal,
            spawn=self.spawn,
            clock=self.clock,
            counters=self.counters,
            randomness=random.Random(7),
        )

    def spawn(self, execution: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self.group.create_task(execution))

    def join(self) -> None:
        """Connect, have a session and be welcomed."""
        self.device.will()
        self.device.connected()
        self.give(Opened(), MINE)
        hello = self.guard.sent.pop()
        assert isinstance(hello, Hello)
        self.give(Welcome(hello.session, INDEX, 60.0), MINE)
        assert self.device.welcomed

    def give(self, paper: Paper, topic: str = GROUP) -> None:
        self.device.receive(topic, encode_value(paper))

    def taken(self) -> list[Upward]:
        """What was sent since the last look."""
        sent, self.guard.sent[:] = self.guard.sent[:], []
        return sent

    async def settle(self) -> None:
        """Until every execution has ended."""
        async with asyncio.timeout(60):
            while self.tasks:
                await self.tasks.pop()

    def tick(self, seconds: float = 0.0) -> list[Upward]:
        self.clock.now += seconds
        self.device.tick(self.clock.now)
        return self.taken()


def job(number: int = 1, **fields: Any) -> Job:
    given = {"tgt": "*", "fun": "test.ping", "user": "ops", "issued": 0.0, "expires": 300.0, **fields}
    return Job(jid=f"{number:020d}", **given)


def deliver(what: Job, remaining: float = 300.0, bits: bytes | None = None, refusal: str = "") -> Deliver:
    return Deliver(encode(what), remaining, bits, refusal)


class Gate:
    """Takes the place of the loader: a call waits until it is let through."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.calls: list[str] = []

    async def call(
        self,
        name: str,
        host: Host,
        arg: list[Any],
        kwarg: dict[str, Any],
        own: Own | None = None,
        judged: Reach | None = None,
    ) -> Ended:
        self.calls.append(name)
        await self.open.wait()
        return Ended(value="through")


async def turns(count: int = 5) -> None:
    """Let tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)
