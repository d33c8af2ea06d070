"""One device with everything around it made of paper: no socket, no journal file, a clock moved by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.device import Device
from device_agent.ended import Ended
from device_agent.host import Host, LocalHost
from device_agent.outbox import MemoryJournal
from device_agent.protocol import topics
from device_agent.protocol.messages import (
    Beat,
    Deliver,
    Downward,
    Gone,
    Hello,
    Job,
    Return,
    Running,
    Upward,
    Welcome,
    decode_upward,
    encode,
)

GROUP = topics.group_job("lisbon")
MINE = topics.device_job("lisbon", "cam-7")
INDEX = 7


class HandClock(Clock):
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Bench:
    """A device with everything around it made of paper."""

    def __init__(self, group: asyncio.TaskGroup, journal: MemoryJournal) -> None:
        self.group = group
        self.journal = journal
        self.clock = HandClock()
        self.counters = Counters()
        self.sent: list[Upward] = []
        self.tasks: list[asyncio.Task[None]] = []
        grains = {"id": "cam-7", "kind": "camera"}
        self.device = Device(
            "cam-7",
            "lisbon",
            grains,
            host=LocalHost(grains),
            journal=journal,
            publish=self.publish,
            spawn=self.spawn,
            clock=self.clock,
            counters=self.counters,
            randomness=random.Random(7),
        )

    def publish(self, topic: str, payload: bytes) -> None:
        kind = topic.rpartition("/")[2]
        message = decode_upward(payload)
        names: dict[str, type[Upward]] = {"hello": Hello, "beat": Beat, "gone": Gone, "running": Running, "ret": Return}
        assert topic == topics.device_up("lisbon", "cam-7", kind)
        assert type(message) is names[kind]
        self.sent.append(message)

    def spawn(self, execution: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self.group.create_task(execution))

    def join(self) -> None:
        """Connect and be welcomed."""
        self.device.will()
        self.device.connected()
        hello = self.sent.pop()
        assert isinstance(hello, Hello)
        self.give(Welcome(hello.session, INDEX, 60.0), MINE)
        assert self.device.welcomed

    def give(self, message: Downward, topic: str = GROUP) -> None:
        self.device.receive(topic, encode(message))

    def taken(self) -> list[Upward]:
        """What was sent since the last look."""
        sent, self.sent[:] = self.sent[:], []
        return sent

    async def settle(self) -> None:
        """Until every execution has ended."""
        async with asyncio.timeout(10):
            while self.tasks:
                await self.tasks.pop()

    def tick(self, seconds: float = 0.0) -> list[Upward]:
        self.clock.now += seconds
        self.device.tick(self.clock.now)
        return self.taken()


def job(number: int = 1, **fields: Any) -> Job:
    given = {"tgt": "*", "fun": "test.ping", "user": "ops", "issued": 0.0, "expires": 300.0, **fields}
    return Job(jid=f"{number:020d}", **given)


def deliver(what: Job, remaining: float = 300.0, bits: bytes | None = None) -> Deliver:
    return Deliver(encode(what), remaining, bits)


class Gate:
    """Takes the place of the loader: a call waits until it is let through."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.calls: list[str] = []

    async def call(self, name: str, host: Host, arg: list[Any], kwarg: dict[str, Any]) -> Ended:
        self.calls.append(name)
        await self.open.wait()
        return Ended(value="through")


async def turns(count: int = 5) -> None:
    """Let tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)
