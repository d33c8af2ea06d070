"""The station's own part in an upgrade: what became of it is an event, once, and a finding of `outstation check`."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import ClassVar, Final

from device_agent.parts import Part
from device_agent.protocol import tags
from gateway.bus import Bus
from gateway.store.reader import Reader
from gateway.store.writer import StoreFailed
from gateway.upgrade.record import FOLDER, Record, read

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
ROW: Final = "upgrade_told"
TOLD: Final = ("healthy", "rolled_back", "failed", "withdrawn")


class UpgradeNews(Part):
    """Tells masters how each upgrade ended."""

    name: ClassVar[str] = "upgrade-news"
    drain_seconds: ClassVar[float] = 0.5

    def __init__(self, *, station: str, reader: Reader, bus: Bus, folder: Path = FOLDER) -> None:
        self._station = station
        self._reader = reader
        self._bus = bus
        self._folder = folder
        self._told = ""

    async def open(self) -> None:
        """Know what was told before."""
        rows = await self._reader.rows("SELECT value FROM station WHERE key = ?", (ROW,))
        self._told = str(rows[0][0]) if rows else ""
        self.spawn(self._look_again(), "look")

    def rollbacks(self) -> dict[str, float]:
        """How often a version was taken back on this machine, for the metrics."""
        record = read(self._folder)
        return {"upgrade_rollbacks": float(record.rollbacks if record is not None else 0)}

    async def look(self) -> None:
        """Tell what is decided and was not told yet."""
        record = await asyncio.to_thread(read, self._folder)
        if record is not None and record.state in TOLD and record.id != self._told:
            await self._tell(record)

    async def _look_again(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _tell(self, record: Record) -> None:
        event = self._bus.event(
            tags.station_upgraded(self._station, record.state),
            {
                "before": record.before,
                "after": record.after,
                "reason": record.reason,
                "rollbacks": record.rollbacks,
            },
        )
        self._told = record.id
        noted = ("INSERT OR REPLACE INTO station VALUES (?, ?)", [(ROW, record.id)])
        try:
            # In one commit, so that an end of the gateway between the two tells it neither twice nor never.
            await self._bus.accept([event], [noted])
        except StoreFailed as error:
            log.error("the event of the upgrade goes out again at the next start error=%s", error.found)
