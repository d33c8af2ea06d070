"""Open jobs that another gateway may have run: they end as unknown, on devices whose only journal is this store."""

from __future__ import annotations

from device_agent.protocol.outcomes import Outcome, State
from device_agent.protocol.stations import station_device
from gateway.jobs.collect import Collection
from gateway.jobs.open_jobs import OpenJobs
from gateway.store.doubt import StoreDoubt
from gateway.store.reader import Reader


class DoubtedJobs:
    """Ends open jobs at a start in doubt, and when a master fences this gateway."""

    def __init__(
        self, site: str, doubt: StoreDoubt, open_jobs: OpenJobs, collection: Collection, reader: Reader
    ) -> None:
        self._site = site
        self._doubt = doubt
        self._open_jobs = open_jobs
        self._collection = collection
        self._reader = reader
        doubt.on_fence(self.end)

    async def end_past(self) -> None:
        """End what was recovered, if the store is in doubt. Raises ``StoreUnreadable``."""
        if why := self._doubt.past():
            await self.end(why)

    async def end(self, why: str) -> None:
        """End what waits for SSH devices and for this station itself.

        A device with an agent is left: its own journal knows what it ran. What was handed out over SSH already is
        answered by the journal of the device, or ends as unknown when its turn comes.
        """
        names = {name for (name,) in await self._reader.rows("SELECT name FROM ssh_devices")}
        names.add(station_device(self._site))
        for opened in self._open_jobs:
            for name, waiting in opened.waiting.items():
                if name in names and name not in opened.committing and waiting.state is State.QUEUED:
                    self._collection.decided(opened, name, Outcome.UNKNOWN, why)
