"""Definitions of jobs that are at hand, so that not each answer reads its job from the store. Bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from device_agent.protocol.messages import Job
from gateway.salt.book import Ordered

JOBS: Final = 1024
BYTES: Final = 4 * 2**20
"""Of all definitions together, as they are encoded. One that is larger alone is not remembered."""


class Remembered:
    """Of the jobs asked for last, the definition; None for one that nobody here knows."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, tuple[Ordered | Job | None, int]] = OrderedDict()
        self.size = 0
        """Bytes of what is at hand."""

    def __contains__(self, jid: str) -> bool:
        return jid in self._jobs

    def __getitem__(self, jid: str) -> Ordered | Job | None:
        self._jobs.move_to_end(jid)
        return self._jobs[jid][0]

    def put(self, jid: str, job: Ordered | Job | None, size: int) -> None:
        """Keep a definition of so many bytes, and let go of those not asked for the longest time."""
        self.size += size - self._jobs.pop(jid, (None, 0))[1]
        self._jobs[jid] = (job, size)
        while self.size > BYTES or len(self._jobs) > JOBS:
            self.size -= self._jobs.popitem(last=False)[1][1]
