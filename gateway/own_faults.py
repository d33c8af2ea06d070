"""What keeps this gateway from taking jobs, as its masters are told: a store that fails, a full spool, open jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.protocol import limits
from gateway.jobs.open_jobs import OpenJobs
from gateway.rooms import Rooms
from gateway.spool.budget import Budget
from gateway.store.health import Failing
from upstream.fault_frames import DETAIL_CHARACTERS, SiteFault

LOOK_SECONDS: Final = 1.0


class OwnFaults(Part):
    """Looks at what may keep it from taking jobs. ``changed`` is set when there is something new to tell."""

    name: ClassVar[str] = "own-faults"

    def __init__(
        self, *, failing: Callable[[], Failing | None], budget: Budget, open_jobs: OpenJobs, clock: Clock
    ) -> None:
        self._failing = failing
        self._budget = budget
        self._open_jobs = open_jobs
        self._clock = clock
        self._since: dict[str, float] = {}
        self._faults: list[SiteFault] = []
        self.changed = asyncio.Event()

    async def open(self) -> None:
        """Start to look."""
        self.spawn(self._run(), "look")

    def faults(self) -> Sequence[SiteFault]:
        """What was found at the last look."""
        return self._faults

    def look(self) -> None:
        """Look now."""
        found = self._found()
        now = self._clock.wall()
        self._since = {reason: self._since.get(reason, now) for reason, _, _ in found}
        faults = [
            SiteFault(reason, since or self._since[reason], detail[:DETAIL_CHARACTERS])
            for reason, since, detail in found
        ]
        if faults != self._faults:
            self._faults = faults
            self.changed.set()

    def _found(self) -> list[tuple[str, float, str]]:
        """Reason, since when (0: since it was seen here first), and the words."""
        found = []
        failing = self._failing()
        if failing is not None:
            found.append(("store_failed", failing.since, failing.error or "the disk does not answer"))
        found += [
            ("spool_full", 0.0, f"the {name} that wait for a master have used up spool.{name}_megabytes")
            for name in self._budget.used_up()
        ]
        if len(self._open_jobs) >= limits.OPEN_JOBS and self._open_jobs.ours() >= limits.OPEN_JOBS:
            found.append(("busy", 0.0, f"{limits.OPEN_JOBS:,} jobs are open, which is the most"))
        return found

    async def _run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)


def faults_of(rooms: Rooms, clock: Clock) -> OwnFaults:
    """Those of a gateway with these rooms."""
    return OwnFaults(failing=rooms.writer.failing, budget=rooms.spool.budget, open_jobs=rooms.open_jobs, clock=clock)
