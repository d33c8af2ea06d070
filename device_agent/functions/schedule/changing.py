"""Entries that come, change and go."""

from __future__ import annotations

from typing import Any

from device_agent.functions.schedule._reach import built, conflict, kept, not_offline, result, schedule_of
from device_agent.host import Host
from device_agent.own import Own
from device_agent.schedule.book import HIDDEN
from device_agent.schedule.entries import ScheduleInvalid, entry
from device_agent.schedule.port import Schedule


async def build_schedule_item(_host: Host, name: str, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Return an entry as ``schedule.add`` would keep it, and keep nothing.

    CLI Example:

        outstation run 'cam-7' schedule.build_schedule_item nightly function=test.ping cron='30 4 * * *'
        outstation run 'cam-7' schedule.build_schedule_item often function=test.ping seconds=3600
    """
    if clash := conflict(kwargs):
        result(clash, ok=False)
    item = built(name, kwargs)
    _refuse_wrong(schedule_of(own), name, item, "It would not be taken.")
    return item


async def add(_host: Host, name: str, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Add an entry: ``function``, ``job_args`` and ``job_kwargs``, and when it runs.

    CLI Example:

        outstation run 'cam-*' schedule.add nightly function=test.ping cron='30 4 * * *' splay=600
        outstation run 'cam-7' schedule.add look function=cmd.run job_args='[uptime]' minutes=10
    """
    schedule = schedule_of(own)
    not_offline(kwargs)
    if not name:
        result("Job name is required.", ok=False, changes={})
    if name in schedule.written():
        result(f"Job {name} already exists in schedule.", ok=False, changes={})
    if clash := conflict(kwargs):
        result(f"Error: {clash}", ok=False, changes={})
    item = built(name, kwargs)
    failed = f"Failed to add job {name} to schedule."
    _refuse_wrong(schedule, name, item, failed)
    if kwargs.get("test"):
        return result(f"Job: {name} would be added to schedule.", changes={})
    reach = own.custom.reach(str(item["function"]))
    await kept(schedule.put(name, item, reach, persist=bool(kwargs.get("persist", True))), failed, changes={})
    return result(f"Added job: {name} to schedule.", changes={name: "added"})


async def modify(_host: Host, name: str, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Put another entry in the place of one; only ``function`` stays where no other is given, as in Salt.

    CLI Example:

        outstation run 'cam-*' schedule.modify nightly function=test.ping cron='0 5 * * *'
        outstation run 'cam-7' schedule.modify look function=cmd.run job_args='[uptime]' hours=1
    """
    schedule = schedule_of(own)
    not_offline(kwargs)
    if clash := conflict(kwargs):
        result(f"Error: {clash}", ok=False, changes={})
    current = schedule.written().get(name)
    if current is None:
        return result(f"Job {name} does not exist in schedule.", ok=False, changes={})
    current.setdefault("enabled", True)
    item = built(name, {"function": current.get("function")} | kwargs)
    failed = f"Failed to modify job {name} in schedule."
    _refuse_wrong(schedule, name, item, failed)
    if item == current:
        return result(f"Job {name} in correct state", changes={})
    changes = {name: {"old": current, "new": item}}
    if kwargs.get("test"):
        return result(f"Job: {name} would be modified in schedule.", changes=changes)
    _refuse_pillar(schedule, name, failed)
    reach = own.custom.reach(str(item["function"]))
    await kept(schedule.put(name, item, reach, persist=bool(kwargs.get("persist", True))), failed, changes={})
    return result(f"Modified job: {name} in schedule.", changes=changes)


async def delete(
    _host: Host, name: str, test: bool = False, persist: bool = True, offline: bool = False, *, own: Own
) -> dict[str, Any]:
    """Delete an entry; one of the settings stays away as well.

    CLI Example:

        outstation run 'cam-*' schedule.delete nightly
        outstation run 'cam-7' schedule.delete look test=True
    """
    schedule = schedule_of(own)
    not_offline({"offline": offline})
    if not name:
        result("Job name is required.", ok=False, changes={})
    if test:
        return result(f"Job: {name} would be deleted from schedule.", changes={})
    if name not in schedule.written():
        result(f"Job {name} does not exist.", ok=False, changes={})
    failed = f"Failed to delete job {name} from schedule."
    _refuse_pillar(schedule, name, failed)
    await kept(schedule.remove(name, persist=persist), failed, changes={})
    return result(f"Deleted Job {name} from schedule.", changes={name: "removed"})


async def purge(
    _host: Host, test: bool = False, persist: bool = True, offline: bool = False, *, own: Own
) -> dict[str, Any]:
    """Delete all entries but those of the pillar.

    CLI Example:

        outstation run 'cam-7' schedule.purge
        outstation run 'cam-*' schedule.purge test=True
    """
    schedule = schedule_of(own)
    not_offline({"offline": offline})
    comments: list[str] = []
    changes: dict[str, str] = {}
    for name in schedule.written():
        if name.startswith(HIDDEN):
            continue
        if test:
            comments.append(f"Job: {name} would be deleted from schedule.")
        elif schedule.is_pillar(name):
            comments.append(f"Failed to delete job {name} from schedule: it is in the pillar.")
        else:
            failed = f"Failed to delete job {name} from schedule."
            await kept(schedule.remove(name, persist=persist), failed, changes=changes)
            comments.append(f"Deleted job: {name} from schedule.")
            changes[name] = "removed"
    return result(comments, changes=changes)


def _refuse_wrong(schedule: Schedule, name: str, item: dict[str, Any], failed: str) -> None:
    try:
        entry(name, item, schedule.zone)
    except ScheduleInvalid as error:
        why = f"{error.where}: {error.what}; found {error.found}; allowed: {error.allowed}"
        result(f"{failed} {why}", ok=False, changes={})


def _refuse_pillar(schedule: Schedule, name: str, failed: str) -> None:
    if schedule.is_pillar(name):
        result(f"{failed[:-1]}: it is in the pillar.", ok=False, changes={})
