"""Tells a master the site's ledger, when a link begins and whenever it has changed."""

from __future__ import annotations

import asyncio

from device_agent.errors import OutstationError
from upstream import frames
from upstream.dealer import LinkLost
from upstream.item_sender import Send
from upstream.ports import Outgoing

EVERY_SECONDS = 5.0
"""A ledger that changes with each item is told once in this time."""


async def report_ledger(outgoing: Outgoing, master: str, send: Send) -> None:
    """Tell a master, known by its key, until cancelled. Raises ``LinkLost``."""
    told: list[frames.LedgerRow] = []
    while True:
        try:
            rows = await outgoing.report(master)
        except OutstationError as error:
            raise LinkLost(f"the ledger cannot be read: {error.what}") from None
        if rows and rows != told:
            await send(frames.LedgerReport(rows))
            told = rows
        await asyncio.sleep(EVERY_SECONDS)
