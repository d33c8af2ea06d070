"""The device's own jobs: which run, and how to end one. And what a site brings to it."""

from __future__ import annotations

import signal
from fnmatch import fnmatchcase
from typing import Any

from device_agent.custom.kinds import FIRST_ENVIRONMENT, KINDS
from device_agent.ended import Ended, FunctionFailed
from device_agent.errors import OutstationError
from device_agent.host import Host
from device_agent.own import Own, RunningJob
from device_agent.protocol import limits

Saltenv = str | list[str] | None


async def running(_host: Host, *, own: Own) -> list[dict[str, Any]]:
    """Return the jobs that run on the device now, the asking one too.

    CLI Example:

        outstation run '*' saltutil.running
    """
    return [_shown(job) for job in own.jobs.running()]


async def find_job(_host: Host, jid: str, *, own: Own) -> dict[str, Any]:
    """Return a job that runs on the device now; nothing is in it when no such job runs.

    CLI Example:

        outstation run '*' saltutil.find_job 20261122140501123456
    """
    return next((_shown(job) for job in own.jobs.running() if job.jid == jid), {})


async def is_running(_host: Host, fun: str, *, own: Own) -> list[dict[str, Any]]:
    """Return the jobs that run on the device now and whose function matches a glob.

    CLI Example:

        outstation run '*' saltutil.is_running 'cmd.*'
    """
    return [_shown(job) for job in own.jobs.running() if any(fnmatchcase(each, fun) for each in job.fun.split(","))]


async def kill_job(_host: Host, jid: str, *, own: Own) -> str:
    """End a running job at once, with all that it started. It ends as ``failed``; nothing is said when none runs.

    CLI Example:

        outstation run '*' saltutil.kill_job 20261122140501123456
    """
    return _stopped(own, jid, signal.SIGKILL, "saltutil.kill_job")


async def term_job(_host: Host, jid: str, *, own: Own) -> str:
    """End a running job, as ``saltutil.kill_job`` does.

    CLI Example:

        outstation run '*' saltutil.term_job 20261122140501123456
    """
    return _stopped(own, jid, signal.SIGTERM, "saltutil.term_job")


async def kill_all_jobs(_host: Host, *, own: Own) -> list[str]:
    """End all jobs that run on the device but those of this module.

    CLI Example:

        outstation run '*' saltutil.kill_all_jobs
    """
    return _all_stopped(own, signal.SIGKILL, "saltutil.kill_all_jobs")


async def term_all_jobs(_host: Host, *, own: Own) -> list[str]:
    """End all jobs that run on the device, as ``saltutil.kill_all_jobs`` does.

    CLI Example:

        outstation run '*' saltutil.term_all_jobs
    """
    return _all_stopped(own, signal.SIGTERM, "saltutil.term_all_jobs")


async def refresh_grains(_host: Host, *, own: Own) -> bool:
    """Collect the grains anew, and return ``True``.

    CLI Example:

        outstation run '*' saltutil.refresh_grains
    """
    if own.regrain is not None:
        await own.regrain()
    return True


async def refresh_pillar(
    _host: Host,
    wait: bool = False,  # noqa: ARG001 - Salt's argument; it is always waited for
    timeout: int = 30,  # noqa: ARG001 - Salt's argument; the station's patience counts
    clean_cache: bool = True,  # noqa: ARG001 - Salt's argument; nothing is kept but what is asked for now
    *,
    own: Own,
) -> bool:
    """Ask the station for the pillar anew, keep it in memory, and return ``True``.

    CLI Example:

        outstation run '*' saltutil.refresh_pillar
    """
    await own.pillar.refresh()
    return True


async def pillar_refresh(
    host: Host, wait: bool = False, timeout: int = 30, clean_cache: bool = True, *, own: Own
) -> bool:
    """Ask the station for the pillar anew, as ``saltutil.refresh_pillar`` does.

    CLI Example:

        outstation run '*' saltutil.pillar_refresh
    """
    return await refresh_pillar(host, wait, timeout, clean_cache, own=own)


async def sync_all(_host: Host, saltenv: Saltenv = None, refresh: bool = True, *, own: Own) -> Ended:
    """Bring everything of these kinds that the station serves and that was released; what changed, by kind.

    CLI Example:

        outstation run '*' saltutil.sync_all
    """
    return await _synced(own, KINDS, saltenv, refresh=refresh)


async def sync_modules(_host: Host, saltenv: Saltenv = None, refresh: bool = True, *, own: Own) -> Ended:
    """Bring the modules of functions in ``salt://_modules`` that were released; the names of those that changed.

    CLI Example:

        outstation run '*' saltutil.sync_modules
    """
    return await _synced(own, "modules", saltenv, refresh=refresh)


async def sync_grains(_host: Host, saltenv: Saltenv = None, refresh: bool = True, *, own: Own) -> Ended:
    """Bring the modules of facts in ``salt://_grains`` that were released, and collect the grains anew.

    CLI Example:

        outstation run '*' saltutil.sync_grains
    """
    return await _synced(own, "grains", saltenv, refresh=refresh)


async def sync_beacons(_host: Host, saltenv: Saltenv = None, refresh: bool = True, *, own: Own) -> Ended:
    """Bring the modules in ``salt://_beacons`` that were released; the names of those that changed.

    CLI Example:

        outstation run '*' saltutil.sync_beacons
    """
    return await _synced(own, "beacons", saltenv, refresh=refresh)


async def sync_engines(_host: Host, saltenv: Saltenv = None, refresh: bool = False, *, own: Own) -> Ended:
    """Bring the modules in ``salt://_engines`` that were released; the names of those that changed.

    CLI Example:

        outstation run '*' saltutil.sync_engines
    """
    return await _synced(own, "engines", saltenv, refresh=refresh)


async def sync_runners(_host: Host, saltenv: Saltenv = None, refresh: bool = True, *, own: Own) -> Ended:
    """Bring the modules in ``salt://_runners`` that were released; the names of those that changed.

    CLI Example:

        outstation run '*' saltutil.sync_runners
    """
    return await _synced(own, "runners", saltenv, refresh=refresh)


async def sync_states(_host: Host, saltenv: Saltenv = None, refresh: bool = True, *, own: Own) -> Ended:
    """Bring the modules in ``salt://_states`` that were released; the names of those that changed.

    CLI Example:

        outstation run '*' saltutil.sync_states
    """
    return await _synced(own, "states", saltenv, refresh=refresh)


async def _synced(own: Own, kinds: str | tuple[str, ...], saltenv: Saltenv, *, refresh: bool) -> Ended:
    """Salt's value, and a failure that names each file that was refused and each fact that could not be told."""
    wanted = (kinds,) if isinstance(kinds, str) else kinds
    try:
        synced = await own.custom.sync(own.station, wanted, _environments(saltenv))
    except (OSError, OutstationError) as error:
        raise FunctionFailed(f"nothing more was brought: {error}") from None
    why = synced.why
    if refresh and "grains" in wanted and own.regrain is not None:
        await own.regrain()
        why = "; ".join(filter(None, [why, *own.custom.grain_problems.values()]))
    value = synced.changed[kinds] if isinstance(kinds, str) else synced.changed
    return Ended(value, 1, "failed", f"module_refused: {why}"[: limits.WHY_CHARACTERS]) if why else Ended(value)


def _environments(saltenv: Saltenv) -> list[str]:
    given = saltenv.split(",") if isinstance(saltenv, str) else saltenv or []
    return [each.strip() for each in given if each.strip()] or [FIRST_ENVIRONMENT]


def _shown(job: RunningJob) -> dict[str, Any]:
    return {
        "jid": job.jid,
        "fun": job.fun,
        "arg": job.arg + ([{"__kwarg__": True, **job.kwarg}] if job.kwarg else []),
        "tgt": job.tgt,
        "tgt_type": job.tgt_type,
        "ret": "",
        "user": job.user,
        "pid": job.pid,
    }


def _all_stopped(own: Own, number: signal.Signals, name: str) -> list[str]:
    jids = [job.jid for job in own.jobs.running() if not all(fun.startswith("saltutil.") for fun in job.fun.split(","))]
    return [_stopped(own, jid, number, name) for jid in jids]


def _stopped(own: Own, jid: str, number: signal.Signals, name: str) -> str:
    pid = next((job.pid for job in own.jobs.running() if job.jid == jid), 0)
    if not own.jobs.stop(jid, f"stopped by {name}"):
        return ""
    return f"Signal {number.value} sent to job {jid} at pid {pid}"
