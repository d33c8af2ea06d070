"""``jobs``: jobs and calls, in the shapes of Salt's runner."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from device_agent.protocol.outcomes import State
from device_agent.protocol.stations import station_device
from gateway.calls.book import CallBook, Kept
from gateway.calls.functions import Function, Run
from gateway.calls.jobs import CallJobs
from gateway.calls.running import Running
from gateway.jobs.open_jobs import OpenJobs
from gateway.jobs.views import JobViews

LISTED: Final = 1000
RAN: Final = frozenset({"ok", "failed"})
"""Outcomes of devices that said something of the job themselves."""


class JobsRunner:
    """The runner."""

    def __init__(self, *, site: str, views: JobViews, open_jobs: OpenJobs, jobs: CallJobs, book: CallBook) -> None:
        self._station = station_device(site)
        self._views = views
        self._open_jobs = open_jobs
        self._jobs = jobs
        self._book = book

    def functions(self) -> list[Function]:
        """What it has."""
        table: dict[str, Run] = {
            "active": self.active,
            "list_jobs": self.list_jobs,
            "list_jobs_filter": self.list_jobs_filter,
            "list_job": self.list_job,
            "print_job": self.print_job,
            "lookup_jid": self.lookup_jid,
            "last_run": self.last_run,
            "exit_success": self.exit_success,
        }
        return [Function(f"jobs.{name}", run, need="view") for name, run in table.items()]

    async def active(self, _: Running) -> dict[str, Any]:
        """List the jobs that are not at their end: where they run, and who has returned.

        CLI example: ``outstation runner jobs.active``
        """
        found = {}
        for view in await self._views.newest(LISTED, "open"):
            opened = self._open_jobs.get(view["jid"])
            waiting = {} if opened is None else opened.waiting
            started = [device for device, each in waiting.items() if each.state is State.RUNNING]
            returned = sorted(await self._jobs.outcomes(view["jid"]))
            # Salt says the process there; a station knows that it runs, and not as which.
            told = {"Running": [{device: 0} for device in sorted(started)], "Returned": returned}
            found[view["jid"]] = {**_job(view), "StartTime": _time(view["jid"]), **told}
        return found

    async def list_jobs(
        self,
        _: Running,
        search_function: str | list[str] | None = None,
        search_target: str | list[str] | None = None,
        start_time: str | None = None,
        end_time: str | None = None,
    ) -> dict[str, Any]:
        """List the newest jobs and calls. Times are as jids begin: 2026, 202611, 20261121 and so on.

        CLI example: ``outstation runner jobs.list_jobs search_function='test.*'``
        """
        found = {}
        for jid, job in sorted((await self._newest()).items()):
            if start_time is not None and jid < _digits(start_time):
                continue
            if end_time is not None and jid[: len(_digits(end_time))] > _digits(end_time):
                continue
            if _fits(search_function, job["Function"]) and _fits(search_target, job["Target"]):
                found[jid] = {**job, "StartTime": _time(jid)}
        return found

    async def list_jobs_filter(
        self,
        _: Running,
        count: int,
        filter_find_job: bool = True,
    ) -> dict[str, Any]:
        """List so many of the newest jobs and calls.

        CLI example: ``outstation runner jobs.list_jobs_filter 10``
        """
        known = {
            jid: job
            for jid, job in (await self._newest()).items()
            if not filter_find_job or job["Function"] != "saltutil.find_job"
        }
        return {
            jid: {**known[jid], "StartTime": _time(jid)} for jid in sorted(sorted(known, reverse=True)[: max(0, count)])
        }

    async def list_job(self, _: Running, jid: str | int) -> dict[str, Any]:
        """Show a job with what each device returned.

        CLI example: ``outstation runner jobs.list_job 20261121211116003098``
        """
        return await self._listed(str(jid))

    async def print_job(self, _: Running, jid: str | int) -> dict[str, Any]:
        """Show a job with what each device returned, under its jid.

        CLI example: ``outstation runner jobs.print_job 20261121211116003098``
        """
        told = await self._listed(str(jid))
        return {str(told.pop("jid", jid)): told}

    async def lookup_jid(
        self,
        _: Running,
        jid: str | int,
        returned: bool = True,
        missing: bool = False,
    ) -> dict[str, Any]:
        """Say what a job returned, by device. With ``missing`` also who has not.

        CLI example: ``outstation runner jobs.lookup_jid 20261121211116003098``
        """
        if (kept := await self._book.one(str(jid))) is not None:
            return {self._station: kept.ended.value} if returned else {}
        outcomes = await self._jobs.outcomes(str(jid))
        found = {
            device: _value(outcome) for device, outcome in outcomes.items() if returned and outcome["outcome"] in RAN
        }
        if missing:
            opened = self._open_jobs.get(str(jid))
            silent = {device for device, outcome in outcomes.items() if outcome["outcome"] not in RAN}
            silent |= set() if opened is None else set(opened.waiting)
            found |= dict.fromkeys(sorted(silent), "Minion did not return")
        return found

    async def last_run(
        self,
        _: Running,
        function: str | None = None,
        target: str | None = None,
    ) -> dict[str, Any] | bool:
        """Show the newest job, of this function or target if one is given; false when there is none.

        CLI example: ``outstation runner jobs.last_run function=test.ping``
        """
        for jid, job in sorted((await self._newest()).items(), reverse=True):
            if _fits(function, job["Function"]) and _fits(target, job["Target"]):
                told = await self._listed(jid)
                return {str(told.pop("jid", jid)): told}
        return False

    async def exit_success(self, _: Running, jid: str | int) -> dict[str, bool]:
        """Say of each device whether it did the job.

        CLI example: ``outstation runner jobs.exit_success 20261121211116003098``
        """
        if (kept := await self._book.one(str(jid))) is not None:
            return {self._station: kept.ended.ok}
        return {device: each["outcome"] == "ok" for device, each in (await self._jobs.outcomes(str(jid))).items()}

    async def _newest(self) -> dict[str, dict[str, Any]]:
        """The newest jobs and calls of operators and of reactions, by jid."""
        jobs = {view["jid"]: _job(view) for view in await self._views.newest(LISTED, None)}
        return jobs | {kept.call.jid: self._call(kept) for kept in await self._book.newest(LISTED)}

    async def _listed(self, jid: str) -> dict[str, Any]:
        kept = await self._book.one(jid)
        if kept is not None:
            station, ended = [self._station], kept.ended
            result = {} if ended.state == "open" else {self._station: _returned(ended.value, ended.retcode)}
            return {"jid": jid, **self._call(kept), "StartTime": _time(jid), "Minions": station, "Result": result}
        view = await self._views.one(jid)
        outcomes = await self._jobs.outcomes(jid)
        opened = self._open_jobs.get(jid)
        minions = sorted({*outcomes, *(() if opened is None else opened.waiting)})
        result = {
            device: _returned(_value(outcome), outcome["retcode"])
            for device, outcome in outcomes.items()
            if outcome["outcome"] in RAN
        }
        return {"jid": jid, **_job(view), "StartTime": _time(jid), "Minions": minions, "Result": result}

    def _call(self, kept: Kept) -> dict[str, Any]:
        call = kept.call
        return {
            "Function": call.said,
            "Arguments": call.fun_args,
            "Target": self._station,
            "Target-type": "list",
            "User": call.user,
        }


def _job(view: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Function": view["fun"],
        "Arguments": [*view["arg"], *([view["kwarg"]] if view["kwarg"] else [])],
        "Target": view["tgt"],
        "Target-type": view["tgt_type"],
        "User": view["user"],
    }


def _returned(value: Any, retcode: int) -> dict[str, Any]:
    return {"return": value, "retcode": retcode, "success": retcode == 0}


def _value(outcome: Mapping[str, Any]) -> Any:
    """What the device said: what it returned, or why it failed."""
    return outcome["why"] if outcome["value"] is None and outcome["outcome"] != "ok" else outcome["value"]


def _fits(wanted: str | list[str] | None, text: str) -> bool:
    globs = [wanted] if isinstance(wanted, str) else wanted
    return globs is None or any(fnmatchcase(text, glob) for glob in globs)


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())


def _time(jid: str) -> str:
    """When it was given, as Salt writes it; empty for what is no jid."""
    try:
        return datetime.strptime(jid, "%Y%m%d%H%M%S%f").strftime("%Y, %b %d %H:%M:%S.%f")  # noqa: DTZ007 - a jid is UTC, and only written otherwise here
    except ValueError:
        return ""
