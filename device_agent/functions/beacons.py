"""What the device watches on itself and tells by itself: its beacons, changed while it runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from device_agent.beacons.asked import OwnBeacons
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.own import Own
from device_agent.pillar import MASK

_SECRET: Final = re.compile("password|passphrase|secret|token", re.IGNORECASE)


async def list_(
    _host: Host,
    return_yaml: bool = True,
    include_pillar: bool = True,
    include_opts: bool = True,
    *,
    own: Own,
    **_kwargs: Any,
) -> Any:
    """Return the beacons that are configured, as YAML; without ``return_yaml`` as they are.

    Passwords are shown as asterisks.

    CLI Example:

        outstation run 'cam-7' beacons.list
        outstation run 'cam-*' beacons.list return_yaml=False include_pillar=False
    """
    found = _masked(_beacons(own).listed(pillar=include_pillar, own=include_opts))
    return _yaml(found) if return_yaml else found


async def list_available(_host: Host, return_yaml: bool = True, *, own: Own, **_kwargs: Any) -> Any:
    """Return the names of the beacons that there are, as YAML; without ``return_yaml`` as a list.

    CLI Example:

        outstation run 'cam-7' beacons.list_available
    """
    found = _beacons(own).available()
    return _yaml(found) if return_yaml else found


async def add(_host: Host, name: str, beacon_data: Any, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Configure a beacon, which begins at once, and return whether it is. With ``test=True`` nothing is done.

    CLI Example:

        outstation run 'cam-7' beacons.add diskusage '[{/: 80%}, {interval: 60}]'
        outstation run 'cam-*' beacons.add ps '[{processes: {mosquitto: stopped}}]'
    """
    beacons = _beacons(own)
    if name in beacons.listed():
        return {"comment": f"Beacon {name} is already configured.", "result": True}
    module = _module(name, beacon_data)
    if module not in beacons.available():
        return {"comment": f'Beacon "{module}" is not available.', "result": False}
    if kwargs.get("test"):
        return {"comment": f"Beacon: {name} would be added.", "result": True}
    if wrong := beacons.wrong(name, beacon_data):
        return {"comment": f"Beacon {name} configuration invalid, not adding.\n{wrong}", "result": False}
    changed = beacons.put(name, beacon_data)
    return {"comment": f"Added beacon: {name}." if changed.done else changed.why, "result": changed.done}


async def modify(_host: Host, name: str, beacon_data: Any, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Configure a beacon otherwise, which begins anew at once, and return what changed. With ``test=True`` nothing is.

    CLI Example:

        outstation run 'cam-7' beacons.modify diskusage '[{/: 90%}]'
    """
    beacons = _beacons(own)
    before = beacons.listed().get(name)
    if before is None:
        return {"comment": f"Beacon {name} is not configured.", "result": True}
    if kwargs.get("test"):
        return {"comment": f"Beacon: {name} would be modified.", "result": True}
    if wrong := beacons.wrong(name, beacon_data):
        return {"comment": f"Beacon {name} configuration invalid, not modifying.\n{wrong}", "result": False}
    if before == beacon_data:
        return {"comment": f"Job {name} in correct state", "result": True}
    changes = {"diff": "".join(difflib.unified_diff(_lines(_masked(before)), _lines(_masked(beacon_data))))}
    changed = beacons.put(name, beacon_data)
    if not changed.done:
        why = changed.why.replace("Cannot update", "Cannot modify").replace("because it is", "it is")
        return {"comment": why, "result": False, "changes": changes}
    return {"comment": f"Modified beacon: {name}.", "result": True, "changes": changes}


async def delete(_host: Host, name: str, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Take a beacon away, and return whether it is. With ``test=True`` nothing is done.

    CLI Example:

        outstation run 'cam-7' beacons.delete diskusage
    """
    if kwargs.get("test"):
        return {"comment": f"Beacon: {name} would be deleted.", "result": True}
    changed = _beacons(own).delete(name)
    return {"comment": f"Deleted beacon: {name}." if changed.done else changed.why, "result": changed.done}


async def save(_host: Host, *, own: Own, **_kwargs: Any) -> dict[str, Any]:
    """Have the beacons as they are now also at the next start of the agent.

    CLI Example:

        outstation run 'cam-7' beacons.save
    """
    beacons = _beacons(own)
    try:
        return {"comment": f"Beacons saved to {await beacons.save()}.", "result": True}
    except OSError as error:
        where = error.filename or "its folder"
        return {"comment": f"Unable to write to beacons file at {where}. Check permissions.", "result": False}


async def enable(_host: Host, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Have beacons run. With ``test=True`` nothing is done.

    CLI Example:

        outstation run 'cam-7' beacons.enable
    """
    if kwargs.get("test"):
        return {"comment": "Beacons would be enabled.", "result": True}
    _beacons(own).enable(None, enabled=True)
    return {"comment": "Enabled beacons on minion.", "result": True}


async def disable(_host: Host, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Have no beacon run. With ``test=True`` nothing is done.

    CLI Example:

        outstation run 'cam-7' beacons.disable
    """
    if kwargs.get("test"):
        return {"comment": "Beacons would be disabled.", "result": True}
    _beacons(own).enable(None, enabled=False)
    return {"comment": "Disabled beacons on minion.", "result": True}


async def enable_beacon(_host: Host, name: str, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Have one beacon run. With ``test=True`` nothing is done.

    CLI Example:

        outstation run 'cam-7' beacons.enable_beacon diskusage
    """
    return _one(own, name, enabled=True, test=bool(kwargs.get("test")))


async def disable_beacon(_host: Host, name: str, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Have one beacon not run. With ``test=True`` nothing is done.

    CLI Example:

        outstation run 'cam-7' beacons.disable_beacon diskusage
    """
    return _one(own, name, enabled=False, test=bool(kwargs.get("test")))


async def reset(_host: Host, *, own: Own, **kwargs: Any) -> dict[str, Any]:
    """Take all beacons away but those of the pillar. With ``test=True`` nothing is done.

    CLI Example:

        outstation run 'cam-7' beacons.reset
    """
    if kwargs.get("test"):
        return {"comment": "Beacons would be reset.", "result": True}
    _beacons(own).reset()
    return {"comment": "Beacon configuration reset.", "result": True}


def _beacons(own: Own) -> OwnBeacons:
    if own.beacons is None:
        raise FunctionFailed("there are no beacons here: they run in an agent, and in a station")
    return own.beacons


def _one(own: Own, name: str, *, enabled: bool, test: bool) -> dict[str, Any]:
    done = "Enabled" if enabled else "Disabled"
    if not name:
        return {"comment": "Beacon name is required.", "result": False}
    if test:
        # Salt says the same of one and of all here.
        would = f"Beacon {name} would be enabled." if enabled else "Beacons would be enabled."
        return {"comment": would, "result": True}
    beacons = _beacons(own)
    if name not in beacons.listed():
        return {"comment": f"Beacon {name} is not currently configured.", "result": False}
    changed = beacons.enable(name, enabled=enabled)
    return {"comment": f"{done} beacon {name} on minion." if changed.done else changed.why, "result": changed.done}


def _module(name: str, data: Any) -> str:
    for each in data if isinstance(data, list) else []:
        if isinstance(each, Mapping) and "beacon_module" in each:
            return str(each["beacon_module"])
    return name


def _masked(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner, name) for inner in value]
    return MASK if value and _SECRET.search(name) else value


def _lines(data: Any) -> list[str]:
    items = data if isinstance(data, list) else []
    return [f"{key}:{value}\n" for item in items if isinstance(item, Mapping) for key, value in item.items()]


def _yaml(found: Any) -> str:
    return yaml.safe_dump({"beacons": found}, default_flow_style=False)
