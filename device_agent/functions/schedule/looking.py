"""What is in the schedule, and what was done of it."""

from __future__ import annotations

from typing import Any, Literal

import yaml

from device_agent.functions.schedule._reach import schedule_of
from device_agent.host import Host
from device_agent.own import Own
from device_agent.schedule.book import HIDDEN
from device_agent.schedule.zones import SALT_FORMAT, shown

_TIMES = ("_next_fire_time", "_last_run", "_skipped_time")


async def list_(
    _host: Host,
    show_all: bool = False,
    show_disabled: bool = True,
    where: Literal["opts", "pillar"] | None = None,
    return_yaml: bool = True,
    offline: bool = False,
    *,
    own: Own,
) -> Any:
    """Return the entries of the schedule, as YAML or as a mapping.

    With ``offline`` those that are kept on the device, without the ones of its settings and its pillar.

    CLI Example:

        outstation run 'cam-7' schedule.list
        outstation run 'cam-*' schedule.list return_yaml=False show_disabled=False
    """
    schedule = schedule_of(own)
    kept = schedule.kept()
    entries = kept if offline else schedule.written(where)
    found: dict[str, Any] = {}
    for name, value in entries.items():
        if name.startswith(HIDDEN) and not show_all:
            continue
        entry = {key: inner for key, inner in value.items() if inner is not None and not key.startswith("_")}
        entry.setdefault("enabled", True)
        if not show_disabled and not entry["enabled"]:
            continue
        found[name] = entry | ({"saved": name in kept} if return_yaml else {})
    if not schedule.enabled:
        found["enabled"] = False
    return yaml.safe_dump({"schedule": found}, default_flow_style=False) if return_yaml else found


async def is_enabled(_host: Host, name: str | None = None, *, own: Own) -> Any:
    """Return whether the schedule runs; of one entry what it says, and nothing of one that is not there.

    CLI Example:

        outstation run 'cam-7' schedule.is_enabled
        outstation run 'cam-7' schedule.is_enabled name=nightly
    """
    schedule = schedule_of(own)
    if not name:
        return schedule.enabled
    value = schedule.written().get(name)
    return {} if value is None else {"enabled": True, **value}


async def job_status(_host: Host, name: str, time_fmt: str = SALT_FORMAT, *, own: Own) -> dict[str, Any]:
    """Return an entry with what was done of it: its last and its next run, what was left out and why.

    CLI Example:

        outstation run 'cam-7' schedule.job_status nightly
        outstation run 'cam-7' schedule.job_status nightly time_fmt='%H:%M'
    """
    schedule = schedule_of(own)
    value = schedule.written().get(name)
    if value is None:
        return {}
    status = schedule.status(name)
    for key in _TIMES:
        if status.get(key) is not None:
            status[key] = shown(status[key], schedule.zone, time_fmt)
    return {"enabled": True, "name": name, **value, **status}


async def show_next_fire_time(_host: Host, name: str, *, own: Own) -> dict[str, Any]:
    """Return when an entry runs next, in the time of the device's zone.

    CLI Example:

        outstation run 'cam-7' schedule.show_next_fire_time nightly
        outstation run 'cam-*' schedule.show_next_fire_time nightly
    """
    schedule = schedule_of(own)
    if not name:
        return {"comment": "Job name is required.", "result": False}
    fire = schedule.next_fire(name)
    return {"result": True, "next_fire_time": None if fire is None else shown(fire, schedule.zone)}
