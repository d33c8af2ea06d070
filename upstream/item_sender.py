"""Sends the spool up to one master, stream by stream, as far as that master has room; what it confirms is let go.

It keeps nothing: where it goes on is what the master said in its welcome. What goes first is decided before each batch,
so that an alarm waits for what is on the line already, which is about a second of it (``window``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from device_agent.errors import OutstationError
from upstream import frames
from upstream.dealer import LinkLost
from upstream.frames import STREAMS, Stream
from upstream.link_budget import LinkBudget
from upstream.ports import Outgoing, Prover, Refusals
from upstream.window import Window

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""What is confirmed and could not be let go is let go after so long, whether or not more is confirmed."""

Send = Callable[[frames.FromSite], Awaitable[None]]
"""Sends one frame. Raises ``LinkLost``."""


class ItemSender:
    """The items' way up over one connection to a master, which is known by its key.

    ``run`` may be cancelled and run again: it goes on behind what it sent.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        budget: LinkBudget,
        window: Window,
        master: str,
        refusals: Refusals,
        prover: Prover | None = None,
    ) -> None:
        self._outgoing = outgoing
        self._budget = budget
        self._window = window
        self._master = master
        self._refusals = refusals
        self._prover, self._signs = prover, False
        self._confirmed: Counter[Stream] = Counter()
        self._sent: Counter[Stream] = Counter()
        self._gone: Counter[Stream] = Counter()
        self._epoch = ""
        self._confirmation = asyncio.Event()
        self._room = asyncio.Event()

    async def begin(self, welcome: frames.SiteWelcome, *, rolled_back: bool) -> None:
        """Go on where the master says. Raises ``LinkLost`` when it knows more of this store than is in it.

        ``rolled_back``: what else is kept beside the items shows so already.
        """
        try:
            if rolled_back or not await self._outgoing.reaches(welcome.positions):
                # A store restored from a backup would number new items as old ones, which the master has had.
                await self._outgoing.went_back("a master knows more of this store than is in it")
                raise LinkLost("the master knows more of this store than is in it: going on under a new epoch")
        except OutstationError as error:
            raise LinkLost(f"the spool cannot be read: {error.what}") from None
        self._confirmed, self._sent = Counter(welcome.positions), Counter(welcome.positions)
        self._gone = Counter()
        self._epoch = self._outgoing.epoch
        self._signs = welcome.proofs
        self._window.begin()
        self._confirmation.set()

    def confirmed(self, frame: frames.Confirmed) -> None:
        """The master has everything of a stream up to there on disk. What it was never sent is refused and counted.

        Of the store as it was called when the link began: what it has of that it has, whatever comes next.
        """
        if frame.epoch != self._epoch or frame.sequence > self._sent[frame.stream]:
            self._refusals.refused("uplink", "false_confirmation", self._master, f"{frame.stream} {frame.sequence}")
        elif frame.sequence > self._confirmed[frame.stream]:
            self._confirmed[frame.stream] = frame.sequence
            self._window.confirmed(self._confirmed)
            self._confirmation.set()
            self._room.set()

    async def emptied(self) -> None:
        """Return when nothing is left to send. The caller bounds it."""
        for stream in STREAMS:
            while await self._outgoing.read(stream, seen := self._confirmed[stream], 1):
                if self._confirmed[stream] == seen:
                    self._room.clear()
                    await self._room.wait()

    async def run(self, send: Send) -> None:
        """Send until cancelled. Raises ``LinkLost``."""
        while True:
            while self._window.is_full:
                self._room.clear()
                await self._room.wait()
            await self._budget.room()
            self._outgoing.changed.clear()
            batch = await self._next()
            if batch is None:
                await self._outgoing.changed.wait()
                continue
            await send(batch)
            stream, last = batch.stream, batch.items[-1][0]
            self._sent[stream] = last
            size = sum(len(body) for _, body in batch.items)
            self._budget.spend(size)
            self._window.sent(stream, last, size)

    async def let_go(self) -> None:
        """Let go of what is confirmed, until cancelled: off the way of what is sent, and all at once."""
        while True:
            await self._confirmation.wait()
            self._confirmation.clear()
            failed = False
            for stream, sequence in list(self._confirmed.items()):
                if sequence <= self._gone[stream]:
                    continue
                try:
                    await self._outgoing.confirm(stream, sequence, self._master)
                    self._gone[stream] = sequence
                except OutstationError as error:
                    log.error("confirmed items could not be let go stream=%s error=%s", stream, error.found)
                    failed = True
            if failed:
                # What is confirmed meanwhile goes with it.
                await asyncio.sleep(AGAIN_SECONDS)
                self._confirmation.set()

    async def _next(self) -> frames.Batch | None:
        """The next batch of the first stream that has any."""
        try:
            while (stream := await self._outgoing.next_stream(self._sent)) is not None:
                after = self._sent[stream]
                items = await self._outgoing.read(stream, after, min(self._budget.most_bytes, self._window.batch_bytes))
                # What was to be read may have given way meanwhile.
                if items:
                    if self._outgoing.epoch != self._epoch:
                        raise LinkLost("the store goes on under a new epoch")
                    if self._signs and self._prover is not None:
                        items = self._prover.items(self._epoch, stream, items)
                    return frames.Batch(self._epoch, stream, after, items)
        except OutstationError as error:
            raise LinkLost(f"the spool cannot be read: {error.what}") from None
        return None
