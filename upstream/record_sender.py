"""Tells one master what has changed in the registry since the revision that it has, page by page."""

from __future__ import annotations

import asyncio

from device_agent.errors import OutstationError
from upstream import frames
from upstream.dealer import LinkLost
from upstream.item_sender import Send
from upstream.ports import Outgoing, Prover, Roll


class RecordSender:
    """The registry's way up over one connection."""

    def __init__(self, roll: Roll, outgoing: Outgoing, prover: Prover | None = None) -> None:
        self._roll = roll
        self._outgoing = outgoing
        self._prover = prover
        self._signs = self._told_anew = False
        self._confirmed = 0
        self._confirmation = asyncio.Event()
        self._changed = asyncio.Event()

    def begin(self, revision: int, *, proofs: bool = False, anew: bool = False) -> None:
        """Go on behind what the master has.

        A station that wants ``proofs`` and has rows without one gets every row ``anew``, once in the life of this link.
        """
        self._signs = proofs and self._prover is not None
        anew = anew and self._signs and not self._told_anew
        self._confirmed = 0 if anew else revision
        self._told_anew = self._told_anew or anew

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
            if self._signs and self._prover is not None:
                records = self._prover.records(self._outgoing.epoch, records)
            await send(frames.DeviceRecords(self._outgoing.epoch, records))
            # One page under way: a registry is state, and a later page would only repeat what this one settles.
            while self._confirmed < records[-1].revision:
                await self._confirmation.wait()
                self._confirmation.clear()
