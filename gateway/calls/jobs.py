"""The jobs that calls give: as whoever asked for the call, and awaited to their last outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from gateway.calls import book
from gateway.calls.book import CallBook
from gateway.calls.call import Call
from gateway.jobs.accept import Acceptance
from gateway.jobs.open_jobs import OpenJobs
from gateway.jobs.request import JobRequest
from gateway.jobs.views import JobViews

PAGE: Final = 1000
LOOK_SECONDS: Final = 5.0


class JobEnded(Struct, frozen=True):
    """A job and its outcomes by device, as ``GET /jobs/{jid}/outcomes`` has them. ``closed``: there come no more."""

    jid: str
    outcomes: Mapping[str, Mapping[str, Any]]
    closed: bool

    @property
    def ok(self) -> bool:
        """Whether every device did it, and there was one."""
        return self.closed and bool(self.outcomes) and all(each["outcome"] == "ok" for each in self.outcomes.values())


class CallJobs:
    """Gives jobs, and waits for them."""

    def __init__(self, *, acceptance: Acceptance, open_jobs: OpenJobs, views: JobViews, book: CallBook) -> None:
        self._acceptance = acceptance
        self._open_jobs = open_jobs
        self._views = views
        self._book = book

    async def run(self, call: Call, request: JobRequest, seconds: float, key: str = "") -> JobEnded:
        """Give a job and wait for its end, so long at most. Raises ``OutstationError`` for one that is refused."""
        jid = await self._book.job(call.jid, key) if key else None
        if jid is None:
            operator = call.asker()
            jid = await self._acceptance.submit(
                replace(request, why=call.why or f"{call.said} {call.jid}"),
                str(operator),
                operator,
                beside=(lambda made: book.of_job(call.jid, key, made)) if key else None,
            )
        return await self.awaited(jid, seconds)

    async def awaited(self, jid: str, seconds: float) -> JobEnded:
        """The end of a job, or what there is of it after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (opened := self._open_jobs.get(jid)) is not None:
                    changed = opened.changed
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await changed.wait()
        closed = self._open_jobs.get(jid) is None
        return JobEnded(jid, await self.outcomes(jid), closed)

    async def outcomes(self, jid: str) -> dict[str, Mapping[str, Any]]:
        """Every outcome of a job, by device."""
        found: dict[str, Mapping[str, Any]] = {}
        after = 0
        while True:
            page, after = await self._views.outcomes(jid, after, PAGE)
            found |= {str(each["id"]): each for each in page}
            if len(page) < PAGE:
                return found
