"""Tells one master what has changed in the registry since the revision that it has, page by page."""

from __future__ import annotations

import asyncio

from device_agent.errors import OutstationError
from upstream import frames
from upstream.dealer import LinkLost
from upstream.item_sender import Send
from upstream.ports import Outgoing, Roll


class RecordSender:
    """The registry's way up over one connection."""

    def __init__(self, roll: Roll, outgoing: Outgoing) -> None:
        self._roll = roll
        self._outgoing = outgoing
        self._confirmed = 0
        self._confirmation = asyncio.Event()
        self._changed = asyncio.Event()

    def begin(self, revision: int) -> None:
        """Go on behind what the master has."""
        self._confirmed = revision

    def news(self) -> None:
        """The registry has changed."""
        self._changed.set()

    def confirmed(self, revision: int) -> None:
        """The master has everything up to there on disk."""
        self._confirmed = max(self._confirmed, revision)
        self._confirmation.set()

    async def run(self, send: Send) -> None:
        """Send until cancelled. Raises ``LinkLost``."""
        while True:
            self._changed.clear()
            try:
                records = await self._roll.records_after(self._confirmed)
            except OutstationError as error:
                raise LinkLost(f"the registry cannot be read: {error.what}") from None
            if not records:
                await self._changed.wait()
                continue
            self._confirmation.clear()
            await send(frames.DeviceRecords(self._outgoing.epoch, records))
            # One page under way: a registry is state, and a later page would only repeat what this one settles.
            while self._confirmed < records[-1].revision:
                await self._confirmation.wait()
                self._confirmation.clear()
