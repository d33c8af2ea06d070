"""Tells masters of jobs what the spool does not bring them: one loop for each link, woken by commits.

The spool goes to the active master alone. A master that owns a job and is not that one, or was away while the job
ended, or was restored from a backup, asks for the job and is told it out of the tables here, from the definition to the
close; while the job is open and the spool goes elsewhere, it is told on. Nothing of this is on disk: whoever lost the
thread asks again. Implements ``upstream.ports.StoryTeller``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from device_agent.errors import StationFailed
from device_agent.protocol import limits
from gateway.jobs.open_jobs import OpenJobs
from gateway.jobs.story_pages import StoryPages, Told
from gateway.metrics import Metrics
from upstream.ports import SendStory
from upstream.story_frames import STORIES_IN_FLIGHT, Story, UnknownJob

log = logging.getLogger(__name__)

TELLINGS = 2 * limits.OPEN_JOBS
"""Jobs told to one master at once; it asks for one more again."""

GATHER_SECONDS = 0.05
"""What is committed within this time goes up together."""

LOOK_SECONDS = 5.0
"""How long a link is not looked at when nothing has changed."""


@dataclass(slots=True, eq=False)
class _Telling:
    """One job told to one master. ``due``: it asked, so it is told up to now also while the spool goes to it."""

    due: bool
    news: bool = True
    told: Told = field(default_factory=Told)


def _inactive() -> bool:
    return False


@dataclass(slots=True, eq=False)
class _Link:
    """One connection to one master."""

    active: Callable[[], bool] = _inactive
    was_active: bool = False
    tellings: dict[str, _Telling] = field(default_factory=dict)
    in_flight: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class Stories:
    """What each master is told."""

    def __init__(self, *, pages: StoryPages, open_jobs: OpenJobs, metrics: Metrics) -> None:
        self._pages = pages
        self._open_jobs = open_jobs
        self._metrics = metrics
        self._links: dict[str, _Link] = {}

    def ask(self, master: str, jid: str, *, anew: bool) -> None:
        """The master asks for a job; ``anew`` from its beginning.

        Without that, a job that is open here and that the spool brings it waits until one of the two has changed.
        """
        link = self._links.setdefault(master, _Link())
        telling = link.tellings.get(jid)
        if telling is None and len(link.tellings) >= TELLINGS:
            self._metrics.add("stories_put_off")
            return
        if telling is None or anew:
            telling = link.tellings[jid] = _Telling(due=anew)
        telling.due = telling.due or self._open_jobs.get(jid) is None
        telling.news = True
        link.wake.set()

    def taken(self, master: str) -> None:
        """The master has dealt with one frame of a story."""
        link = self._links.get(master)
        if link is not None:
            link.in_flight = max(0, link.in_flight - 1)
            link.wake.set()

    def offered(self, master: str, jid: str, *, again: bool) -> None:
        """A master gave us a job. What becomes of it goes there too: it may not be the one that the spool goes to.

        ``again``: the job was known here, from this master or from another one.
        """
        link = self._links.get(master)
        if link is not None and (again or not link.active()):
            self.ask(master, jid, anew=again and jid not in link.tellings)

    def news(self, jid: str) -> None:
        """Something of this job was committed."""
        for link in self._links.values():
            telling = link.tellings.get(jid)
            if telling is not None:
                telling.news = True
                link.wake.set()

    def role_changed(self, master: str) -> None:
        """The spool goes to this master from now on, or does no more."""
        link = self._links.get(master)
        if link is not None:
            link.wake.set()

    async def tell(self, master: str, active: Callable[[], bool], send: SendStory) -> None:
        """Tell this master over one connection, until cancelled. ``active``: whether it is sent the spool now."""
        link = self._links.setdefault(master, _Link())
        link.active = active
        try:
            while True:
                link.wake.clear()
                if await self._round(link, send):
                    continue
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await link.wake.wait()
                    await asyncio.sleep(GATHER_SECONDS)
                except TimeoutError:
                    pass
        finally:
            if self._links.get(master) is link:
                del self._links[master]

    async def _round(self, link: _Link, send: SendStory) -> bool:
        """A page of each job that has something to tell; whether there is more for which there is room."""
        more, active = False, link.active()
        if active and not link.was_active:
            # What was committed in the last moment may have gone to the one that was active before.
            for telling in link.tellings.values():
                telling.due = True
        link.was_active = active
        for jid, telling in list(link.tellings.items()):
            if link.in_flight >= STORIES_IN_FLIGHT:
                return False
            if not telling.news or link.tellings.get(jid) is not telling:
                continue
            if link.active() and not telling.due:
                # The spool brings it. Of a closed job the rest is under way there; who misses some of it asks.
                if self._open_jobs.get(jid) is None:
                    del link.tellings[jid]
                continue
            telling.news = False
            more = await self._tell_page(link, jid, telling, send) or more
        return more

    async def _tell_page(self, link: _Link, jid: str, telling: _Telling, send: SendStory) -> bool:
        try:
            page = await self._pages.next(jid, telling.told)
        except StationFailed as error:
            log.error("job not told jid=%s error=%s", jid, error.found)
            link.tellings.pop(jid, None)
            return False
        if page is None or page.items:
            link.in_flight += 1
            self._metrics.add("stories_told")
            await send(UnknownJob(jid) if page is None else Story(jid, page.items, page.final))
        if link.tellings.get(jid) is not telling:
            # It was asked for anew meanwhile.
            return True
        if page is None or page.final:
            del link.tellings[jid]
            return False
        if page.more:
            telling.news = True
            # Behind the others: one long story does not hold up the short ones.
            link.tellings[jid] = link.tellings.pop(jid)
            return True
        telling.due = False
        return False
