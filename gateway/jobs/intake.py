"""What comes from above, in order, off the link: a link that is lost in the middle of a commit must not tear it.

Implements ``upstream.ports.JobIntake``. What is still in the queue when the process dies is sent again by the master,
since nothing was answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.protocol.links import Parcel
from gateway.jobs.accept import Acceptance
from gateway.jobs.deliver import Delivery

QUEUED = 64
"""Jobs waiting to be put on disk; beyond it the link is not read."""


@dataclass(frozen=True)
class _Job:
    parcel: Parcel
    expires: float
    master: str


@dataclass(frozen=True)
class _Cancel:
    jid: str


class Intake(Part):
    """Takes jobs and cancels from the uplink and hands them on, one after another."""

    name: ClassVar[str] = "intake"

    def __init__(self, acceptance: Acceptance, delivery: Delivery, clock: Clock) -> None:
        self._acceptance = acceptance
        self._delivery = delivery
        self._clock = clock
        self._queue: asyncio.Queue[_Job | _Cancel] = asyncio.Queue(maxsize=QUEUED)

    async def open(self) -> None:
        """Start handing on."""
        self.spawn(self._run(), "hand-on")

    async def drain(self) -> None:
        """Finish what was taken."""
        await self._queue.join()

    async def accept_from_above(self, parcel: Parcel, remaining: float, master: str) -> None:
        """Take a job; its expiry runs while it waits here."""
        await self._queue.put(_Job(parcel, self._clock.monotonic() + remaining, master))

    async def cancel_from_above(self, jid: str) -> None:
        """Take a cancel; it stays behind the job it is about."""
        await self._queue.put(_Cancel(jid))

    async def _run(self) -> None:
        while True:
            taken = await self._queue.get()
            try:
                match taken:
                    case _Job(parcel=parcel, expires=expires, master=master):
                        await self._acceptance.accept_from_above(parcel, expires - self._clock.monotonic(), master)
                    case _Cancel(jid=jid):
                        self._acceptance.forestall(jid)
                        await self._delivery.cancel_from_above(jid)
            finally:
                self._queue.task_done()
