"""Entries that are switched on and off, run, put off and left out."""

from __future__ import annotations

from typing import Any

from device_agent.ended import FunctionFailed
from device_agent.functions.schedule._reach import kept, result, schedule_of
from device_agent.host import Host
from device_agent.own import Own
from device_agent.schedule.port import Schedule
from device_agent.schedule.zones import SALT_FORMAT, read


async def enable_job(_host: Host, name: str, test: bool = False, persist: bool = True, *, own: Own) -> dict[str, Any]:
    """Switch an entry on.

    CLI Example:

        outstation run 'cam-7' schedule.enable_job nightly
        outstation run 'cam-*' schedule.enable_job nightly persist=False
    """
    return await _switch_job(name, "enable", own, on=True, test=test, persist=persist)


async def disable_job(_host: Host, name: str, test: bool = False, persist: bool = True, *, own: Own) -> dict[str, Any]:
    """Switch an entry off; it stays where it is.

    CLI Example:

        outstation run 'cam-7' schedule.disable_job nightly
        outstation run 'cam-*' schedule.disable_job nightly persist=False
    """
    return await _switch_job(name, "disable", own, on=False, test=test, persist=persist)


async def enable(_host: Host, test: bool = False, persist: bool = True, *, own: Own) -> dict[str, Any]:
    """Switch the schedule on as a whole.

    CLI Example:

        outstation run 'cam-7' schedule.enable
        outstation run 'cam-*' schedule.enable persist=False
    """
    return await _switch_all("enable", own, on=True, test=test, persist=persist)


async def disable(_host: Host, test: bool = False, persist: bool = True, *, own: Own) -> dict[str, Any]:
    """Switch the schedule off as a whole; its entries stay.

    CLI Example:

        outstation run 'cam-7' schedule.disable
        outstation run 'cam-*' schedule.disable persist=False
    """
    return await _switch_all("disable", own, on=False, test=test, persist=persist)


async def run_job(_host: Host, name: str, force: bool = False, *, own: Own) -> dict[str, Any]:
    """Run an entry now, beside its times; one that is switched off only with ``force``.

    What it returns comes as the return of every scheduled run; ``jid`` is that of the run.

    CLI Example:

        outstation run 'cam-7' schedule.run_job nightly
        outstation run 'cam-7' schedule.run_job nightly force=True
    """
    schedule = schedule_of(own)
    if not name:
        result("Job name is required.", ok=False)
    entry = schedule.written().get(name)
    if entry is None:
        return result(f"Job {name} does not exist.", ok=False)
    if entry.get("enabled", True) is False and not force:
        return result(f"Job {name} is disabled.")
    failed = f"Failed to run job {name} on minion."
    if error := schedule.status(name).get("_error"):
        result(f"{failed} {error}", ok=False)
    try:
        jid = await schedule.run(name)
    except OSError as error:
        return result(f"{failed} It cannot be kept: {error.strerror or error}", ok=False)
    return result(f"Scheduling Job {name} on minion.", jid=jid)


async def postpone_job(
    _host: Host, name: str, current_time: str, new_time: str, time_fmt: str = SALT_FORMAT, *, own: Own
) -> dict[str, Any]:
    """Leave an entry out at one time, and run it at another instead.

    CLI Example:

        outstation run 'cam-7' schedule.postpone_job nightly 2026-12-24T04:30:00 2026-12-24T09:00:00
        outstation run 'cam-7' schedule.postpone_job nightly 20261224-0430 20261224-0900 time_fmt='%Y%m%d-%H%M'
    """
    schedule = schedule_of(own)
    at, to = (_time(text, time_fmt, schedule) for text in (current_time, new_time))
    return await _move(schedule, name, at, to, "postpone", f"Postponed Job {name} in schedule.")


async def skip_job(
    _host: Host, name: str, current_time: str, time_fmt: str = SALT_FORMAT, *, own: Own
) -> dict[str, Any]:
    """Leave an entry out at one time.

    CLI Example:

        outstation run 'cam-7' schedule.skip_job nightly 2026-12-24T04:30:00
        outstation run 'cam-7' schedule.skip_job nightly '24.12.2026 04:30' time_fmt='%d.%m.%Y %H:%M'
    """
    schedule = schedule_of(own)
    at = _time(current_time, time_fmt, schedule)
    return await _move(schedule, name, at, None, "skip", f"Added Skip Job {name} in schedule.")


async def save(_host: Host, test: bool = False, *, own: Own) -> dict[str, Any]:
    """Keep what was changed with ``persist=False`` as well.

    CLI Example:

        outstation run 'cam-7' schedule.save
        outstation run 'cam-*' schedule.save test=True
    """
    schedule = schedule_of(own)
    if test:
        return result("Schedule would be saved.")
    await kept(schedule.save(), "Failed to save schedule.")
    return result("Schedule (non-pillar items) saved.")


async def reload(_host: Host, *, own: Own) -> dict[str, Any]:
    """Forget what was changed with ``persist=False``, and ask for the pillar anew.

    CLI Example:

        outstation run 'cam-7' schedule.reload
        outstation run 'cam-*' schedule.reload
    """
    schedule = schedule_of(own)
    comments: list[str] = []
    try:
        if await schedule.reload():
            comments.append("Reloaded schedule from pillar on minion.")
    except FunctionFailed as error:
        result([f"Failed to reload schedule from pillar on minion: {error.why}"], ok=False)
    except OSError as error:
        result([f"Failed to reload schedule on minion: {error.strerror or error}"], ok=False)
    comments.append("Reloaded schedule on minion from schedule.conf.")
    return result(comments)


async def _switch_job(name: str, word: str, own: Own, *, on: bool, test: bool, persist: bool) -> dict[str, Any]:
    schedule = schedule_of(own)
    if not name:
        result("Job name is required.", ok=False, changes={})
    if test:
        return result(f"Job: {name} would be {word}d in schedule.", changes={})
    if name not in schedule.written():
        result(f"Job {name} does not exist.", ok=False, changes={})
    failed = f"Failed to {word} job {name} in schedule"
    if schedule.is_pillar(name):
        result(f"{failed}: it is in the pillar.", ok=False, changes={})
    await kept(schedule.switch(name, on=on, persist=persist), f"{failed}.", changes={})
    return result(f"{word.capitalize()}d Job {name} in schedule.", changes={name: f"{word}d"})


async def _switch_all(word: str, own: Own, *, on: bool, test: bool, persist: bool) -> dict[str, Any]:
    schedule = schedule_of(own)
    if test:
        return result(f"Schedule would be {word}d.", changes={})
    failed = f"Failed to {word} schedule on minion."
    await kept(schedule.switch(None, on=on, persist=persist), failed, changes={})
    return result(f"{word.capitalize()}d schedule on minion.", changes={"schedule": f"{word}d"})


async def _move(schedule: Schedule, name: str, at: float, to: float | None, word: str, done: str) -> dict[str, Any]:
    if name not in schedule.written():
        result(f"Job {name} does not exist.", ok=False)
    failed = f"Failed to {word} job {name} in schedule."
    if error := schedule.status(name).get("_error"):
        result(f"{failed} {error}", ok=False)
    await kept(schedule.move(name, at, to), failed)
    return result(done)


def _time(text: str, fmt: str, schedule: Schedule) -> float:
    if not text:
        result("Job time is required.", ok=False)
    try:
        return read(text, fmt, schedule.zone)
    except (ValueError, OverflowError):
        result(f"Date string could not be parsed: {text[:80]!r} is not as {fmt[:80]!r} says.", ok=False)
        raise
