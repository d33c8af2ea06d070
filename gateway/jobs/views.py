"""Jobs as the API shows them, open or closed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from device_agent.clock import Clock
from device_agent.errors import NotFound
from device_agent.protocol.messages import Job, decode_job, decode_stored
from device_agent.protocol.outcomes import State
from device_agent.protocol.several import SEVERAL, in_salt, title
from gateway.devices.sites import SiteBook
from gateway.jobs.open_jobs import BranchState, OpenJob, OpenJobs
from gateway.jobs.seal import public
from gateway.store.reader import Reader

MISSING_SHOWN = 100
_COLUMNS = "SELECT jid, body, origin, accepted, closed, cancelled, held, expected FROM jobs"


class JobViews:
    """Answers questions about jobs from memory and the store."""

    def __init__(self, *, open_jobs: OpenJobs, reader: Reader, site_book: SiteBook, clock: Clock) -> None:
        self._open_jobs = open_jobs
        self._reader = reader
        self._site_book = site_book
        self._clock = clock

    async def one(self, jid: str) -> dict[str, Any]:
        """One job. Raises ``NotFound``."""
        rows = await self._reader.rows(f"{_COLUMNS} WHERE jid = ?", (jid,))
        if not rows:
            raise NotFound(f"no job {jid}", error_id="job.unknown", hint="outstation jobs list")
        return await self._view(*rows[0])

    async def newest(self, limit: int, state: str | None) -> list[dict[str, Any]]:
        """The newest jobs first; ``state`` is open, held (and open), closed or None for all."""
        where = {
            "open": "WHERE closed IS NULL",
            "held": "WHERE closed IS NULL AND held = 1",
            "closed": "WHERE closed IS NOT NULL",
        }.get(state or "", "")
        rows = await self._reader.rows(f"{_COLUMNS} {where} ORDER BY jid DESC LIMIT ?", (limit,))
        return [await self._view(*row) for row in rows]

    async def outcomes(
        self, jid: str, after: int, limit: int, outcome: str | None = None
    ) -> tuple[list[dict[str, Any]], int]:
        """Outcomes in the order they were committed, and the cursor for the next page."""
        rows = await self._reader.rows(
            "SELECT id, device, site, outcome, retcode, value, why, seen, ended, duration, executions FROM outcomes"
            " WHERE jid = ? AND id > ? AND (? IS NULL OR outcome = ?) ORDER BY id LIMIT ?",
            (jid, after, outcome, outcome, limit),
        )
        views = [
            {
                "id": device,
                "site": site,
                "outcome": ended_as,
                "retcode": retcode,
                "value": None if value is None else decode_stored(value),
                "why": why,
                "seen": seen,
                "ended": ended,
                "duration": duration,
                "executions": executions,
            }
            for _, device, site, ended_as, retcode, value, why, seen, ended, duration, executions in rows
        ]
        return views, rows[-1][0] if rows else after

    def progress(self, jid: str) -> dict[str, Any] | None:
        """What is awaited of an open job."""
        opened = self._open_jobs.get(jid)
        if opened is None:
            return None
        return {
            "expected": opened.expected,
            "counts": dict(opened.counts),
            "waiting": self._waiting(opened),
            "sites": self._sites(opened),
        }

    async def _view(
        self,
        jid: str,
        body: bytes,
        origin: str,
        accepted: float,
        closed: float | None,
        cancelled: int,
        held: int,
        expected: int | None,
    ) -> dict[str, Any]:
        job = decode_job(body)
        opened = self._open_jobs.get(jid)
        # Whoever may look at jobs is not whom the arguments of a sealed one are for.
        view = _definition(public(job), origin, accepted, closed, bool(cancelled))
        view["held"] = bool(held) and closed is None
        last = await self._reader.rows(
            "SELECT outcome, count(*), max(ended) FROM outcomes WHERE jid = ? GROUP BY outcome", (jid,)
        )
        view["last_outcome"] = max((row[2] for row in last), default=None)
        if opened is not None:
            view |= {"state": "open", **(self.progress(jid) or {})}
            return view
        counts = Counter({outcome: count for outcome, count, _ in last})
        view |= {
            "state": "closed",
            "expected": counts.total() if expected is None else expected,
            "counts": dict(counts),
            "waiting": {},
        }
        view["sites"] = await self._closed_sites(jid)
        view["missing"] = await self._missing(job)
        return view

    async def _missing(self, job: Job) -> list[str]:
        """Names in a list target that no site knows: Salt's ``missing``. At most so many as are worth reading."""
        if job.tgt_type != "list":
            return []
        rows = await self._reader.rows("SELECT DISTINCT device FROM outcomes WHERE jid = ?", (job.jid,))
        known = {device for (device,) in rows}
        named = {name for name in job.tgt.replace(" ", ",").split(",") if name}
        return sorted(named - known)[:MISSING_SHOWN]

    def _waiting(self, opened: OpenJob) -> dict[str, int]:
        states = Counter(waiting.state.value for waiting in opened.waiting.values())
        # What a site has taken is on its way as far as can be seen from here.
        states[State.DELIVERED.value] += sum(len(branch.awaiting) for branch in opened.branches.values())
        return {state: count for state, count in states.items() if count}

    def _sites(self, opened: OpenJob) -> list[dict[str, Any]]:
        views = []
        for branch in opened.branches.values():
            site = self._site_book.get(branch.site)
            state = {BranchState.CLOSED: "closed", BranchState.ANSWERED: "answering"}.get(branch.state, "waiting")
            if not site.connected and branch.state is not BranchState.CLOSED:
                state = "dark"
            views.append(
                {
                    "site": branch.site,
                    "state": state,
                    "expected": branch.expected,
                    "done": len(branch.ended),
                    "connected": site.connected,
                    "last_seen": site.last_seen,
                }
            )
        return views

    async def _closed_sites(self, jid: str) -> list[dict[str, Any]]:
        rows = await self._reader.rows(
            "SELECT job_sites.site, count(outcomes.id), sum(outcomes.outcome = 'site_dark') FROM job_sites"
            " LEFT JOIN outcomes ON outcomes.jid = job_sites.jid AND outcomes.link = job_sites.site"
            " WHERE job_sites.jid = ? GROUP BY job_sites.site",
            (jid,),
        )
        answered = {
            row[0]
            for row in await self._reader.rows(
                "SELECT DISTINCT link FROM manifests WHERE jid = ? AND page >= 0", (jid,)
            )
        }
        return [
            {
                "site": site,
                # A site that never said who would answer is dark, also when nothing was known behind it.
                "state": "closed" if site in answered and not dark else "dark",
                "expected": count,
                "done": count - (dark or 0),
                "connected": self._site_book.get(site).connected,
                "last_seen": self._site_book.get(site).last_seen,
            }
            for site, count, dark in rows
        ]


def _definition(job: Job, origin: str, accepted: float, closed: float | None, cancelled: bool) -> dict[str, Any]:
    several = job.fun == SEVERAL
    return {
        "jid": job.jid,
        "fun": title(job.fun, job.arg, job.kwarg),
        "arg": in_salt(job.fun, job.arg, job.kwarg)[1] if several else job.arg,
        "kwarg": {} if several else job.kwarg,
        "tgt": job.tgt,
        "tgt_type": job.tgt_type,
        "typed": job.typed,
        "typed_type": job.typed_type,
        "user": job.user,
        "origin": job.origin or origin,
        "issued": job.issued,
        "expires": job.expires,
        "late": job.late,
        "run_limit": job.run_limit,
        "why": job.why,
        "sealed": job.sealed,
        "commits": job.commits,
        "accepted": accepted,
        "closed": closed,
        "cancelled": cancelled,
    }
