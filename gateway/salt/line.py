"""What the sender knows of one connected Salt master, and what it tells it at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from device_agent.clock import Clock
from device_agent.protocol.messages import OutcomeRecord
from gateway.salt.cursor import Cursor
from gateway.salt.pace import CHUNK, Pace
from upstream.salt.ports import ReturnsOfJob, SaltAbove

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1024 * 1024
PROMPT: Final = 1000
"""Announcements that wait for one master, and as many answers to probes."""

LEAVE_SECONDS: Final = 60.0
"""What is on its way to a master is not waited for longer than that, when something else was not answered."""


@dataclass
class Line:
    """A connected master."""

    above: SaltAbove
    cursor: Cursor
    pace: Pace = field(default_factory=Pace)
    announcements: asyncio.Queue[tuple[str, Sequence[str]]] = field(default_factory=lambda: asyncio.Queue(PROMPT))
    prompt: asyncio.Queue[ReturnsOfJob] = field(default_factory=lambda: asyncio.Queue(PROMPT))
    """Answers that nobody needs later. A master stores them like all others, so no announcement waits behind one."""
    wider: asyncio.Event = field(default_factory=asyncio.Event)
    """More messages may be on their way at once than before."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Whoever looks for the next items."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    busy: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """There was nothing left to answer when it was last looked for."""
    posted: asyncio.Event = field(default_factory=asyncio.Event)

    leaving: bool = False
    """Something was not answered: nothing more is begun, and what is on its way is waited for."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """No message is on its way."""
    on_its_way: int = 0

    def __post_init__(self) -> None:
        self.idle.set()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """A message is on its way to the master."""
        self.on_its_way += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.on_its_way -= 1
            if not self.on_its_way:
                self.idle.set()

    async def announce(self) -> None:
        """Say whose answers to wait for, as soon as it is known."""
        while True:
            jid, ids = await self.announcements.get()
            with self.telling():
                await self.above.announce(jid, ids)

    async def answer_at_once(self) -> None:
        """Tell the answers that nobody needs later."""
        while True:
            entry = await self.prompt.get()
            with self.telling():
                await self.above.returns([entry])

    @contextmanager
    def paced(self, answers: int, clock: Clock) -> Iterator[None]:
        """So many answers are told: how long that takes says how much is told next."""
        began, confirmed = clock.monotonic(), False
        try:
            yield
            confirmed = True
        finally:
            pace, chunk, ways = self.pace, self.pace.chunk, self.pace.ways
            pace.took(answers, seconds := clock.monotonic() - began, confirmed=confirmed)
            if pace.chunk < chunk or pace.ways < ways:
                log.info(
                    "a Salt master is slow, it is told less at once seconds=%.1f answers=%d next=%d messages=%d",
                    seconds,
                    answers,
                    pace.chunk,
                    pace.ways,
                )
            if pace.ways > ways:
                self.wider.set()
                # Each of those that wait does so for the event as it was then.
                self.wider = asyncio.Event()

    async def may_tell(self, number: int) -> None:
        """Return when so many others may have a message on its way beside one more."""
        while number >= self.pace.ways:
            await self.wider.wait()

    async def leave(self) -> None:
        """Begin nothing more, and wait for what is on its way: the master may have it, and would get it twice."""
        self.leaving = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.idle.wait()

    def wake(self) -> None:
        """There may be something to tell."""
        self.answered.clear()
        self.posted.clear()
        self.news.set()
        # Each of its loops waits for the event as it was then.
        self.news = asyncio.Event()


@dataclass
class Chunk:
    """What is told in one message; nobody else is told of it until it is released."""

    most: int = CHUNK
    """Answers that go into it."""
    records: list[OutcomeRecord] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    """Which items these are."""
    sequences: list[int] = field(default_factory=list)
    size: int = 0
    handed_over: bool = False
    """It is counted among what its line is busy with."""
    settled: bool = False
    """Nothing of it waits any more."""

    def full(self) -> bool:
        """Whether nothing more goes into the message."""
        return len(self.sequences) >= self.most or self.size >= CHUNK_BYTES
