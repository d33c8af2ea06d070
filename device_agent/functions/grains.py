"""The facts a device reports about itself, and those it was told."""

from __future__ import annotations

from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Annotated, Any

import yaml
from msgspec import Meta

from device_agent.commands import do
from device_agent.ended import FunctionFailed
from device_agent.facts import CUSTOM_BYTES, custom_size, loaded
from device_agent.facts_script import CUSTOM_FILE_BYTES
from device_agent.host import Host
from device_agent.own import NO_GRAINS_FILE, Own
from device_agent.traverse import ABSENT, merged, traversed
from device_agent.utf8_text import utf8_text

Delimiter = Annotated[str, Meta(min_length=1)]
GRAINS_FILE_BYTES = 256 * 1024


async def items(host: Host, sanitize: bool = False) -> dict[str, Any]:
    """Return all grains; with ``sanitize`` without what names this one machine.

    CLI Example:

        outstation run '*' grains.items
    """
    return _sanitized(host.grains) if sanitize else host.grains


async def item(host: Host, *args: str, default: Any = "", delimiter: Delimiter = ":", sanitize: bool = False) -> Any:
    """Return several grains by name, each ``default`` when there is none.

    CLI Example:

        outstation run '*' grains.item os osrelease
    """
    grains = _sanitized(host.grains) if sanitize else host.grains
    found = {name: traversed(grains, name, delimiter) for name in args}
    return {name: default if value is ABSENT else value for name, value in found.items()}


async def ls(host: Host) -> list[str]:
    """Return the names of all grains.

    CLI Example:

        outstation run '*' grains.ls
    """
    return sorted(host.grains)


async def get(host: Host, key: str, default: Any = "", delimiter: Delimiter = ":", ordered: bool = True) -> Any:  # noqa: ARG001 - Salt's argument; what is returned is always ordered
    """Return one grain, or what is given as default when there is none; keys of nested grains are parted by ':'.

    CLI Example:

        outstation run '*' grains.get os
        outstation run '*' grains.get ip4_interfaces:eth0
    """
    found = traversed(host.grains, key, delimiter)
    return default if found is ABSENT else found


async def fetch(host: Host, key: str, default: Any = "", delimiter: Delimiter = ":", ordered: bool = True) -> Any:
    """Return one grain, as ``grains.get`` does.

    CLI Example:

        outstation run '*' grains.fetch os
    """
    return await get(host, key, default, delimiter, ordered)


async def has_value(host: Host, key: str) -> bool:
    """Return whether there is such a grain, whatever it is.

    CLI Example:

        outstation run '*' grains.has_value os
    """
    return traversed(host.grains, key) is not ABSENT


async def equals(host: Host, key: str, value: Any) -> bool:
    """Return whether a grain, written as text, is this value, written as text.

    CLI Example:

        outstation run '*' grains.equals os Debian
    """
    return str(value) == str(await get(host, key))


async def filter_by(
    host: Host,
    lookup_dict: dict[str, Any],
    grain: str = "os_family",
    merge: dict[str, Any] | None = None,
    default: str = "default",
    base: str | None = None,
) -> Any:
    """Return what a mapping, whose names are shell patterns, has for the value of a grain, or has for ``default``.

    ``base`` names an entry that lies below, ``merge`` is laid over what was found.

    CLI Example:

        outstation run '*' grains.filter_by '{Debian: apt, Alpine: apk, default: opkg}'
    """
    value = await get(host, grain, None)
    names = [str(name) for name in (value if isinstance(value, list) else [value])]
    hits = (lookup_dict[key] for name in names for key in lookup_dict if fnmatchcase(name, key))
    found = next(hits, lookup_dict.get(default))
    if base is not None and base in lookup_dict:
        found = lookup_dict[base] if found is None else merged(lookup_dict[base], found)
    return found if merge is None else merge if found is None else merged(found, merge)


async def setval(
    host: Host, key: str, val: Any, destructive: bool = False, refresh_pillar: bool = True, *, own: Own
) -> Any:
    """Set one of the device's own grains, in the file that keeps them, and return it.

    CLI Example:

        outstation run 'cam-7' grains.setval floor 3
    """
    return await setvals(host, {key: val}, destructive, refresh_pillar, own=own)


async def setvals(
    host: Host,
    grains: dict[str, Any],
    destructive: bool = False,
    refresh_pillar: bool = True,  # noqa: ARG001 - Salt's argument; pillar is asked for when it is needed
    *,
    own: Own,
) -> Any:
    """Set several of the device's own grains and return them. With ``destructive`` what is set to nothing goes away.

    CLI Example:

        outstation run 'cam-7' grains.setvals '{floor: 3, wing: north}'
    """
    async with own.writing_grains:
        return await _written(host, grains, own, destructive=destructive)


async def append(host: Host, key: str, val: Any, convert: bool = False, delimiter: Delimiter = ":", *, own: Own) -> Any:
    """Append a value to a grain that is a list; ``convert`` makes a list of one that is not. Return the grain set.

    CLI Example:

        outstation run 'cam-7' grains.append roles entrance
    """
    async with own.writing_grains:
        found = deepcopy(await get(host, key, [], delimiter))
        if convert and not isinstance(found, list):
            found = [] if found is None else [found]
        if not isinstance(found, list):
            return f"The key {key} is not a valid list"
        if val in found:
            return f"The val {val} was already in the list {key}"
        found += val if isinstance(val, list) else [val]
        top, whole = await _nested(host, key, found, delimiter)
        return await _written(host, {top: whole}, own)


async def remove(host: Host, key: str, val: Any, delimiter: Delimiter = ":", *, own: Own) -> Any:
    """Remove a value from a grain that is a list, and return the grain set.

    CLI Example:

        outstation run 'cam-7' grains.remove roles entrance
    """
    async with own.writing_grains:
        found = deepcopy(await get(host, key, [], delimiter))
        if not isinstance(found, list):
            return f"The key {key} is not a valid list"
        if val not in found:
            return f"The val {val} was not in the list {key}"
        found.remove(val)
        top, whole = await _nested(host, key, found, delimiter)
        return await _written(host, {top: whole}, own)


async def delkey(host: Host, key: str, force: bool = False, *, own: Own) -> Any:
    """Remove one of the device's own grains altogether.

    CLI Example:

        outstation run 'cam-7' grains.delkey floor
    """
    return await set_(host, key, None, force, destructive=True, own=own)


async def delval(host: Host, key: str, destructive: bool = False, force: bool = False, *, own: Own) -> Any:
    """Set one of the device's own grains to nothing; with ``destructive`` remove it.

    CLI Example:

        outstation run 'cam-7' grains.delval floor
    """
    return await set_(host, key, None, force, destructive=destructive, own=own)


async def set_(
    host: Host,
    key: str,
    val: Any = "",
    force: bool = False,
    destructive: bool = False,
    delimiter: Delimiter = ":",
    *,
    own: Own,
) -> dict[str, Any]:
    """Set one of the device's own grains, nested ones too. Lists and mappings are only replaced with ``force``.

    CLI Example:

        outstation run 'cam-7' grains.set location:room dock
    """
    async with own.writing_grains:
        return await _set(host, key, val, delimiter, own, force=force, destructive=destructive)


async def _set(
    host: Host, key: str, val: Any, delimiter: str, own: Own, *, force: bool, destructive: bool
) -> dict[str, Any]:
    answer: dict[str, Any] = {"comment": "", "changes": {}, "result": True}
    present = traversed(host.grains, key, delimiter)
    if present is not ABSENT and present == val and not (val is None and destructive):
        return answer | {"comment": "Grain is already set"}
    if present is not None and not force:
        if isinstance(present, dict | list):
            says = f"The key '{key}' exists but is a dict or a list. Use 'force=True' to overwrite."
            return answer | {"comment": says, "result": False}
        if isinstance(val, dict | list) and present is not ABSENT:
            says = f"The key '{key}' exists and the given value is a dict or a list. Use 'force=True' to overwrite."
            return answer | {"comment": says, "result": False}
    value = val
    while delimiter in key:
        key, rest = key.rsplit(delimiter, 1)
        outer = deepcopy(await get(host, key, {}, delimiter))
        if not _put(outer, rest, value, destructive=destructive):
            if outer != rest and not force:
                says = (
                    f"The key '{key}' value is '{outer}', which is different from the provided key '{rest}'. "
                    "Use 'force=True' to overwrite."
                )
                return answer | {"comment": says, "result": False}
            outer = {rest: value}
        value = outer
    return answer | {"changes": await _written(host, {key: value}, own, destructive=destructive)}


async def _written(host: Host, grains: dict[str, Any], own: Own, *, destructive: bool = False) -> dict[str, Any]:
    """Put grains into the file of the device's own; whoever calls holds the lock, since it is read before."""
    kept = await _kept(host, own.grains_file)
    for key, value in grains.items():
        if value is None and destructive:
            kept.pop(key, None)
        else:
            kept[key] = value
    await _keep(host, own.grains_file, kept)
    for key in grains:
        if key in kept:
            host.grains[key] = kept[key]
        else:
            host.grains.pop(key, None)
    if own.regrain is not None:
        await own.regrain()
    return grains


def _put(outer: Any, name: str, value: Any, *, destructive: bool) -> bool:
    """Put a value into a mapping, or into the mapping of that name in a list; False for anything else."""
    if isinstance(outer, dict):
        if value is None and destructive:
            outer.pop(name, None)
        else:
            outer[name] = value
        return True
    if not isinstance(outer, list):
        return False
    places = [at for at, each in enumerate(outer) if each == name or (isinstance(each, dict) and name in each)]
    for at in places:
        outer[at] = {**(outer[at] if isinstance(outer[at], dict) else {}), name: value}
    if not places:
        outer.append({name: value})
    return True


async def _nested(host: Host, key: str, value: Any, delimiter: str) -> tuple[str, Any]:
    """The outermost grain of a path, with the value put into its place."""
    while delimiter in key:
        key, rest = key.rsplit(delimiter, 1)
        outer = deepcopy(await get(host, key, {}, delimiter))
        value = {**outer, rest: value} if isinstance(outer, dict) else {rest: value}
    return key, value


async def _kept(host: Host, path: str) -> dict[str, Any]:
    """The device's own grains as its file has them."""
    if path == NO_GRAINS_FILE:
        raise FunctionFailed("this device is simulated: it keeps no grains of its own")
    try:
        text = await host.read(path, limit=GRAINS_FILE_BYTES + 1)
    except FileNotFoundError:
        return {}
    if len(text) > GRAINS_FILE_BYTES:
        raise FunctionFailed(f"{path} has more than {GRAINS_FILE_BYTES} bytes, so it was not changed")
    try:
        found = loaded(utf8_text(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FunctionFailed(f"{path} cannot be read as YAML, so it was not changed: {error}") from error
    return found if isinstance(found, dict) else {}


async def _keep(host: Host, path: str, grains: dict[str, Any]) -> None:
    size = custom_size(grains)
    if size > CUSTOM_BYTES:
        # They would not be read again, none of them.
        raise FunctionFailed(f"{path} was not changed: its grains would have {size} bytes, at most {CUSTOM_BYTES}")
    text = yaml.safe_dump(grains, default_flow_style=False, allow_unicode=True)
    if len(text.encode()) >= CUSTOM_FILE_BYTES:
        raise FunctionFailed(f"{path} was not changed: it would be longer than {CUSTOM_FILE_BYTES - 1} bytes")
    try:
        loaded(text)
    except ValueError as error:
        raise FunctionFailed(f"{path} was not changed: its grains would have {error}") from None
    folder = path.rpartition("/")[0]
    if folder and await host.stat(folder) is None:
        await do(host, "mkdir", "-p", folder)
    await host.write(path, text.encode())


def _sanitized(grains: dict[str, Any]) -> dict[str, Any]:
    """Without what names one machine, as Salt replaces it."""
    instead = {
        "serialnumber": "*" * 4,
        "domain": "DOMAIN",
        "fqdn": "MINION.DOMAINNAME",
        "host": "HOSTNAME",
        "localhost": "HOSTNAME",
        "nodename": "HOSTNAME",
        "id": "MINION.DOMAINNAME",
    }
    return {name: instead.get(name, value) for name, value in grains.items()}
