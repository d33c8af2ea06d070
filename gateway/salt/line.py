"""What the sender knows of one connected Salt master, and what it tells it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from device_agent.protocol.messages import OutcomeRecord
from gateway.salt.cursor import Cursor
from upstream.salt.ports import ReturnsOfJob, SaltAbove

CHUNK: Final = 100
"""Answers in one message: a stock master stores each of them before it says that it has them."""

CHUNK_BYTES: Final = 1024 * 1024


@dataclass
class Line:
    """A connected master."""

    above: SaltAbove
    cursor: Cursor
    prompt: asyncio.Queue[ReturnsOfJob | tuple[str, Sequence[str]]]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Whoever looks for the next items."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    busy: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """There was nothing left to answer when it was last looked for."""
    posted: asyncio.Event = field(default_factory=asyncio.Event)

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

    records: list[OutcomeRecord] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    size: int = 0
    handed_over: bool = False
    """It is counted among what its line is busy with."""
    settled: bool = False
    """Nothing of it waits any more."""

    def full(self) -> bool:
        """Whether nothing more goes into the message."""
        return len(self.sequences) >= CHUNK or self.size >= CHUNK_BYTES
