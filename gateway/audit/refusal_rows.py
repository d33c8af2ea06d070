"""Writes the rows of counted refusals when their windows end, and the rest when the station stops."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from device_agent.parts import Part
from gateway.audit.book import AuditBook

LOOK_SECONDS = 1.0


class RefusalRows(Part):
    """Asks the audit once a second which counted refusals are due."""

    name: ClassVar[str] = "refusal-rows"
    drain_seconds: ClassVar[float] = 2.0

    def __init__(self, audit: AuditBook) -> None:
        self._audit = audit

    async def open(self) -> None:
        """Start."""
        self.spawn(self._run(), "run")

    async def drain(self) -> None:
        """Write what was counted until now."""
        await self._audit.write_counted(all_of_them=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._audit.write_counted()
