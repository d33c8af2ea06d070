"""Jobs in the API: issue, list, show, watch, cancel, release."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from device_agent.errors import UsageInvalid
from gateway.api.operation import Answer, Asked, Operation, whole
from gateway.jobs.accept import Acceptance, JobRequest
from gateway.jobs.deliver import Delivery
from gateway.jobs.open_jobs import LOCAL, OpenJobs
from gateway.jobs.permission import Permission
from gateway.jobs.views import JobViews
from gateway.store.writer import Statement

PAGE = 1000
KEEPALIVE_SECONDS = 10.0
PROGRESS_SECONDS = 0.1


class JobsApi:
    """Operations on jobs."""

    def __init__(
        self,
        *,
        acceptance: Acceptance,
        delivery: Delivery,
        views: JobViews,
        open_jobs: OpenJobs,
        stopping: asyncio.Event,
        permission: Permission | None = None,
    ) -> None:
        self._acceptance = acceptance
        self._delivery = delivery
        self._views = views
        self._open_jobs = open_jobs
        self._stopping = stopping
        self._permission = permission

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "POST",
                "/jobs",
                "Issue a job",
                self._issue,
                body=JobRequest,
                status=201,
                needs="run",
                action="run",
                own_row=True,
            ),
            Operation(
                "GET",
                "/jobs",
                "The newest jobs",
                self._list,
                query={"limit": "at most so many, up to 1000; default 50", "state": "open, held or closed"},
            ),
            Operation("GET", "/jobs/{jid}", "One job", self._show),
            Operation(
                "POST",
                "/jobs/{jid}/cancel",
                "Stop a job where it has not started",
                self._cancel,
                needs="run",
                action="cancel",
                own_row=True,
            ),
            Operation(
                "POST",
                "/jobs/{jid}/release",
                "Let a held job go",
                self._release,
                needs="release",
                action="release",
                own_row=True,
            ),
            Operation(
                "GET",
                "/jobs/{jid}/outcomes",
                "Its outcomes, in the order they were committed",
                self._outcomes,
                query={
                    "outcome": "only this outcome",
                    "limit": "at most so many, up to 1000; default 1000",
                    "after": "the cursor of the page before",
                },
            ),
            Operation("GET", "/jobs/{jid}/watch", "Outcomes as they come, until the close", self._watch, stream=True),
        ]

    async def _issue(self, asked: Asked) -> Answer:
        request: JobRequest = asked.body
        # Whoever the kernel or a token says is asking; a name given in the request only stands beside it.
        claimed = f" ({request.user})" if request.user and request.user != asked.user else ""
        jid = await self._acceptance.submit(request, f"{asked.operator}{claimed}"[:128], asked.operator)
        return await self._views.one(jid)

    async def _list(self, asked: Asked) -> Answer:
        state = asked.query.get("state")
        if state not in (None, "open", "held", "closed"):
            raise UsageInvalid("no such state of a job", where="state", found=state, allowed="open, held, closed")
        return {"jobs": await self._views.newest(whole(asked, "limit", 50, PAGE), state)}

    async def _show(self, asked: Asked) -> Answer:
        return await self._views.one(asked.path["jid"])

    async def _cancel(self, asked: Asked) -> Answer:
        jid = asked.path["jid"]
        view = await self._views.one(jid)
        if view["state"] == "closed":
            raise UsageInvalid(
                f"job {jid} has ended", error_id="job.not_open", found=str(view["counts"]), allowed="an open job"
            )
        opened = self._open_jobs.get(jid)
        beside: list[Statement] = []
        if self._permission is not None and opened is not None:
            here = opened.origin == LOCAL
            beside = await self._permission.cancelling(asked.operator, opened.job, issued_here=here)
        await self._delivery.cancel(jid, beside)
        return await self._views.one(jid)

    async def _release(self, asked: Asked) -> Answer:
        jid = asked.path["jid"]
        await self._views.one(jid)
        opened = self._open_jobs.get(jid)
        beside: list[Statement] = []
        if self._permission is not None and opened is not None and opened.held:
            here = opened.origin == LOCAL
            beside = await self._permission.releasing(asked.operator, opened.job, issued_here=here)
        await self._delivery.release(jid, beside)
        return await self._views.one(jid)

    async def _outcomes(self, asked: Asked) -> Answer:
        jid = asked.path["jid"]
        await self._views.one(jid)
        limit = whole(asked, "limit", PAGE, PAGE)
        after = whole(asked, "after", 0, 2**62)
        outcomes, cursor = await self._views.outcomes(jid, after, limit, asked.query.get("outcome"))
        return {"outcomes": outcomes, "next": cursor if len(outcomes) == limit and limit else None}

    async def _watch(self, asked: Asked) -> Answer:
        jid = asked.path["jid"]
        return self._watching(jid, await self._views.one(jid))

    async def _watching(self, jid: str, first: dict[str, Any]) -> AsyncIterator[Mapping[str, Any] | None]:
        """Read the store page by page: a slow reader costs nothing here, and misses nothing."""
        yield {"type": "job", "job": first}
        after = 0
        while not self._stopping.is_set():
            opened = self._open_jobs.get(jid)
            changed = opened.changed if opened is not None else None
            outcomes, after = await self._views.outcomes(jid, after, PAGE)
            for outcome in outcomes:
                yield {"type": "outcome", **outcome}
            if outcomes and len(outcomes) == PAGE:
                continue
            if changed is None:
                yield {"type": "close", "job": await self._views.one(jid)}
                return
            progress = self._views.progress(jid)
            if progress is not None:
                yield {"type": "progress", **progress}
            try:
                async with asyncio.timeout(KEEPALIVE_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield None
            await asyncio.sleep(PROGRESS_SECONDS)
