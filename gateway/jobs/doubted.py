"""Open jobs that another gateway may have run: they end as unknown, on devices whose only journal is this store."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence

from device_agent.clock import Clock
from device_agent.protocol.outcomes import Outcome, State
from device_agent.protocol.stations import station_device
from gateway.jobs.collect import Collection
from gateway.jobs.handed_out import handing_out
from gateway.jobs.open_jobs import OpenJobs
from gateway.store.doubt import StoreDoubt
from gateway.store.reader import Reader
from gateway.store.writer import StoreFailed, Writer

log = logging.getLogger(__name__)


class DoubtedJobs:
    """Ends open jobs at a start in doubt, and when a master fences this gateway."""

    def __init__(
        self,
        site: str,
        doubt: StoreDoubt,
        open_jobs: OpenJobs,
        collection: Collection,
        reader: Reader,
        writer: Writer,
        clock: Clock,
    ) -> None:
        self._site = site
        self._doubt = doubt
        self._open_jobs = open_jobs
        self._collection = collection
        self._reader = reader
        self._writer = writer
        self._clock = clock
        doubt.on_doubt(self.end)

    async def end_past(self) -> None:
        """End what was recovered, if the store is in doubt. Raises ``StoreUnreadable``."""
        if why := self._doubt.past():
            await self.end(why)

    async def end(self, why: str) -> None:
        """End what waits for SSH devices and for this station itself.

        A device with an agent answers from its own journal: its job counts as handed out from now on, for the store
        cannot know that it was not. So it ends as the device says, or as unknown, and never as not started. What was
        handed out over SSH already is answered by the journal of the device, or ends as unknown when its turn comes.
        """
        names = {name for (name,) in await self._reader.rows("SELECT name FROM ssh_devices")}
        names.add(station_device(self._site))
        with_agents: dict[str, list[str]] = defaultdict(list)
        for opened in self._open_jobs:
            for name, waiting in opened.waiting.items():
                if name in opened.committing or waiting.state is not State.QUEUED:
                    continue
                if name in names:
                    self._collection.decided(opened, name, Outcome.UNKNOWN, why)
                else:
                    waiting.state, waiting.since = State.DELIVERED, self._clock.monotonic()
                    with_agents[opened.job.jid].append(name)
        if with_agents:
            await self._keep(with_agents)

    async def _keep(self, with_agents: Mapping[str, Sequence[str]]) -> None:
        """A next start, which may be an ordinary one, has to know it as well."""
        try:
            await self._writer.commit([handing_out(jid, {"": names}) for jid, names in with_agents.items()])
        except StoreFailed as error:
            log.error("it is not kept that jobs may have been handed out error=%s", error)
