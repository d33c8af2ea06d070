"""Sends the spool up to one master, in order, as far as that master has room; what it confirms is let go.

It keeps nothing: where it goes on is what the master said in its welcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from device_agent.errors import OutstationError
from device_agent.protocol import limits
from upstream import frames
from upstream.dealer import LinkLost
from upstream.link_budget import LinkBudget
from upstream.ports import Outgoing

log = logging.getLogger(__name__)

Send = Callable[[frames.FromSite], Awaitable[None]]
"""Sends one frame. Raises ``LinkLost``."""


class ItemSender:
    """The items' way up over one connection. ``run`` may be cancelled and run again: it goes on behind what it sent."""

    def __init__(self, outgoing: Outgoing, budget: LinkBudget) -> None:
        self._outgoing = outgoing
        self._budget = budget
        self._confirmed = 0
        self._sent = 0
        self._confirmation = asyncio.Event()

    async def begin(self, welcome: frames.SiteWelcome, *, rolled_back: bool) -> None:
        """Go on where the master says. Raises ``LinkLost`` when it knows more of this store than is in it.

        ``rolled_back``: what else is kept beside the items shows so already.
        """
        try:
            if rolled_back or not await self._outgoing.reaches(welcome.confirmed):
                # A store restored from a backup would number new items as old ones, which the master has had.
                await self._outgoing.renew_epoch()
                raise LinkLost("the master knows more of this store than is in it: going on under a new epoch")
        except OutstationError as error:
            raise LinkLost(f"the spool cannot be read: {error.what}") from None
        self._confirmed = self._sent = welcome.confirmed
        await self._let_go(welcome.confirmed)

    async def confirmed(self, frame: frames.Confirmed) -> None:
        """The master has everything up to there on disk."""
        if frame.epoch == self._outgoing.epoch and frame.sequence > self._confirmed:
            self._confirmed = frame.sequence
            await self._let_go(frame.sequence)
            self._confirmation.set()

    async def emptied(self) -> None:
        """Return when nothing is left to send. The caller bounds it."""
        while await self._outgoing.read(seen := self._confirmed):
            if self._confirmed == seen:
                self._confirmation.clear()
                await self._confirmation.wait()

    async def run(self, send: Send) -> None:
        """Send until cancelled. Raises ``LinkLost``."""
        under_way: deque[int] = deque()
        while True:
            await self._budget.room()
            self._outgoing.changed.clear()
            try:
                items = await self._outgoing.read(self._sent)
            except OutstationError as error:
                raise LinkLost(f"the spool cannot be read: {error.what}") from None
            if not items:
                await self._outgoing.changed.wait()
                continue
            await send(frames.Batch(self._outgoing.epoch, self._sent, items))
            self._sent = items[-1][0]
            self._budget.spend(sum(len(body) for _, body in items))
            under_way.append(self._sent)
            # Counted in batches, as the master does: a batch of large items holds few of them.
            while len(under_way) >= limits.BATCHES_IN_FLIGHT:
                if under_way[0] <= self._confirmed:
                    under_way.popleft()
                    continue
                self._confirmation.clear()
                await self._confirmation.wait()

    async def _let_go(self, sequence: int) -> None:
        try:
            await self._outgoing.confirm(sequence)
        except OutstationError as error:
            # What is confirmed but still on disk is let go with the next confirmation.
            log.error("confirmed items could not be let go sequence=%d error=%s", sequence, error.what)
