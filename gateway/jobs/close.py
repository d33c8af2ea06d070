"""A job ends: when every expected device has an outcome, the station writes and sends its last word, the close."""

from __future__ import annotations

import logging
from collections.abc import Callable

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from device_agent.protocol import tags
from device_agent.protocol.messages import Close, Item
from gateway.bus import Bus
from gateway.jobs.expect import pages
from gateway.jobs.open_jobs import OpenJob, OpenJobs
from gateway.jobs.record import called
from gateway.metrics import Metrics
from gateway.spool.queue import Spool
from gateway.store.reader import Reader
from gateway.store.writer import StoreFailed, Writer

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0


class Closing:
    """Closes what has ended."""

    def __init__(
        self,
        *,
        site: str,
        open_jobs: OpenJobs,
        writer: Writer,
        reader: Reader,
        spool: Spool,
        bus: Bus,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._open_jobs = open_jobs
        self._writer = writer
        self._reader = reader
        self._spool = spool
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._on_news: Callable[[str], None] | None = None

    def on_news(self, call: Callable[[str], None]) -> None:
        """Call with the jid when something of a job was committed."""
        self._on_news = call

    async def check(self, opened: OpenJob) -> None:
        """Close the job if it has ended; otherwise wake those who watch it."""
        opened.pulse()
        self._tell(opened)
        if not opened.all_ended or opened.closing or self._open_jobs.get(opened.job.jid) is not opened:
            return
        opened.closing = True
        jid = opened.job.jid
        try:
            # Counted from what is on disk, which is what the close is about.
            rows = await self._reader.rows(
                "SELECT outcome, count(*) FROM outcomes WHERE jid = ? GROUP BY outcome", (jid,)
            )
            counts: dict[str, int] = dict(rows)
            items: list[Item] = [] if opened.manifest_final else [*pages(jid, self._site, [], 0, final=True)]
            items.append(Close(jid=jid, site=self._site, counts=counts))
            row = (self._clock.wall(), opened.expected, jid)
            await self._writer.commit(
                [("UPDATE jobs SET closed = ?, expected = ? WHERE jid = ?", [row]), *self._spool.adding(items)]
            )
        except StationFailed as error:
            # Still open: it is looked at again in a moment, and after a restart.
            log.error("job not closed yet jid=%s error=%s", jid, error.found)
            opened.closing = False
            opened.look_at = self._clock.monotonic() + AGAIN_SECONDS
            return
        self._open_jobs.remove(jid)
        self._spool.added()
        self._tell(opened)
        self._metrics.add("jobs_closed")
        log.info("job closed jid=%s expected=%d counts=%s", jid, opened.expected, counts)
        event = self._bus.event(tags.job_close(jid), {"jid": jid, "fun": called(opened.job)[0], "counts": counts})
        await self._bus.fire([event], upward=False)

    async def answered(self, opened: OpenJob) -> None:
        """A relay says once, when every site below has answered, that its own answer is complete."""
        if opened.manifest_final or not opened.all_answered:
            return
        try:
            await self._writer.commit(self._spool.adding(pages(opened.job.jid, self._site, [], 0, final=True)))
        except StoreFailed as error:
            # The close says it too, should this be the last chance.
            log.error("final page not written jid=%s error=%s", opened.job.jid, error.found)
            return
        opened.manifest_final = True
        self._spool.added()
        self._tell(opened)

    def _tell(self, opened: OpenJob) -> None:
        if self._on_news is not None:
            self._on_news(opened.job.jid)
