"""Closed jobs are kept for a time, as Salt's job cache does, and then let go with all that belongs to them.

Who did what on which device is kept longer, for the audit.
"""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.parts import Part
from gateway.jobs.steady_clock import SteadyClock
from gateway.store.writer import StoreFailed, Writer

log = logging.getLogger(__name__)

EVERY_SECONDS = 600.0
_PRUNE = (
    # What the audit needs of outcomes outlives the job: who, not what it returned.
    (
        "INSERT OR IGNORE INTO audit_outcomes (jid, site, outcome, why, devices, ended)"
        " SELECT jid, site, outcome, why, json_group_array(device), max(ended) FROM outcomes"
        " WHERE jid IN (SELECT jid FROM jobs WHERE closed < ? AND deadline < ?) GROUP BY jid, site, outcome, why"
    ),
    "DELETE FROM outcomes WHERE jid IN (SELECT jid FROM jobs WHERE closed < ? AND deadline < ?)",
    "DELETE FROM manifests WHERE jid IN (SELECT jid FROM jobs WHERE closed < ? AND deadline < ?)",
    "DELETE FROM job_seals WHERE jid IN (SELECT jid FROM jobs WHERE closed < ? AND deadline < ?)",
    "DELETE FROM deliveries WHERE jid IN (SELECT jid FROM jobs WHERE closed < ? AND deadline < ?)",
    "DELETE FROM job_sites WHERE jid IN (SELECT jid FROM jobs WHERE closed < ? AND deadline < ?)",
    "DELETE FROM untold WHERE jid IN (SELECT jid FROM jobs WHERE closed < ? AND deadline < ?)",
    "DELETE FROM jobs WHERE closed < ? AND deadline < ?",
)
_PRUNE_AUDIT = ("DELETE FROM audit WHERE at < ?", "DELETE FROM audit_outcomes WHERE ended < ?")
KEEP_AUDIT_SECONDS = 400 * 86_400.0


class Retention(Part):
    """Deletes jobs that were closed long enough ago and whose expiry has passed, so that a repeat cannot run again."""

    name: ClassVar[str] = "retention"

    def __init__(
        self, *, writer: Writer, keep_seconds: float, clock: Clock, keep_audit_seconds: float = KEEP_AUDIT_SECONDS
    ) -> None:
        self._writer = writer
        self._keep_seconds = keep_seconds
        self._keep_audit_seconds = keep_audit_seconds
        self._steady = SteadyClock(clock, keep_seconds)

    async def open(self) -> None:
        """Start the loop."""
        self.spawn(self._run(), "prune")

    async def _run(self) -> None:
        while True:
            now = self._steady.now()
            row = (now - self._keep_seconds, now)
            try:
                await self._writer.commit(
                    [
                        *((statement, [row]) for statement in _PRUNE),
                        *((statement, [(now - self._keep_audit_seconds,)]) for statement in _PRUNE_AUDIT),
                    ]
                )
            except StoreFailed as error:
                log.error("old jobs not pruned error=%s", error.found)
            await asyncio.sleep(EVERY_SECONDS)
