"""The settings of the device, as far as they may be read, behind them its grains, and behind those its pillar.

What is found in pillar is shown as asterisks: ``pillar.get`` shows it to those who ask for it with ``unmask=True``.
"""

from __future__ import annotations

from fnmatch import filter as matching
from functools import reduce
from typing import Annotated, Any

from msgspec import Meta

from device_agent.host import Host
from device_agent.own import Own
from device_agent.pillar import as_json, masked
from device_agent.traverse import ABSENT, merged, traversed

PROTOCOLS = ("salt", "file")
Delimiter = Annotated[str, Meta(min_length=1)]


async def get(
    host: Host,
    key: str,
    default: Any = "",
    delimiter: Delimiter = ":",
    merge: str | None = None,
    *,
    omit_opts: bool = False,
    omit_pillar: bool = False,
    omit_master: bool = False,  # noqa: ARG001 - Salt's argument; a device has no settings of its master
    omit_grains: bool = False,
    own: Own,
) -> Any:
    """Return a setting of the device, else a grain, else a value of its pillar; keys inside others are parted by ':'.

    With ``merge=recurse`` a mapping that is in several is returned as one, the settings before the grains before the
    pillar; with ``merge=overwrite`` the first mapping stands alone.

    CLI Example:

        outstation run '*' config.get log_level
        outstation run '*' config.get broker:host
    """
    places = [] if omit_opts else [own.settings]
    places += [] if omit_grains else [host.grains]
    found = [value for place in places if (value := traversed(place, key, delimiter)) is not ABSENT]
    joins = merge is not None and merge != "overwrite"
    if not omit_pillar and (joins or not found):
        hidden = traversed(await own.pillar.load_or_none(), key, delimiter)
        found += [] if hidden is ABSENT else [masked(as_json(hidden))]
    if joins and found:
        return reduce(merged, reversed(found))
    return found[0] if found else default


async def option(
    host: Host,
    value: str,
    default: Any = None,
    omit_opts: bool = False,
    omit_grains: bool = False,
    omit_pillar: bool = False,
    omit_master: bool = False,  # noqa: ARG001 - Salt's argument; a device has no settings of its master
    omit_all: bool = False,
    wildcard: bool = False,
    *,
    own: Own,
) -> Any:
    """Return a setting of the device, else a grain, else of its pillar. With ``wildcard`` return all that match a glob.

    CLI Example:

        outstation run '*' config.option log_level
        outstation run '*' config.option 'log*' wildcard=True
    """
    settings = {} if omit_opts or omit_all else own.settings
    grains = {} if omit_grains or omit_all else host.grains
    if wildcard:
        both = {**await _pillar(own, omit_pillar or omit_all), **grains, **settings}
        return {name: both[name] for name in matching(both, value)} or ({} if default is None else default)
    for place in (settings, grains):
        if value in place:
            return place[value]
    pillar = await _pillar(own, omit_pillar or omit_all)
    return pillar.get(value, "" if default is None else default)


async def merge(
    _host: Host,
    value: str,
    default: Any = "",
    omit_opts: bool = False,
    omit_master: bool = False,  # noqa: ARG001 - Salt's argument; a device has no settings of its master
    omit_pillar: bool = False,
    *,
    own: Own,
) -> Any:
    """Return a setting of the device, else a value of its pillar; grains are not looked at.

    CLI Example:

        outstation run '*' config.merge broker
    """
    if not omit_opts and value in own.settings:
        return own.settings[value]
    return (await _pillar(own, omit_pillar)).get(value, default)


async def dot_vals(_host: Host, value: str, *, own: Own) -> dict[str, Any]:
    """Return the settings whose name begins with this word and a dot.

    CLI Example:

        outstation run '*' config.dot_vals host
    """
    return {name: found for name, found in own.settings.items() if name.startswith(f"{value}.")}


async def items(_host: Host, *, own: Own) -> dict[str, Any]:
    """Return all settings of the device that may be read.

    CLI Example:

        outstation run '*' config.items
    """
    return own.settings


async def backup_mode(host: Host, backup: str = "", *, own: Own) -> Any:
    """Return this mode of backups, or the setting, grain or pillar value ``backup_mode`` where none is given.

    CLI Example:

        outstation run '*' config.backup_mode
    """
    return backup or await option(host, "backup_mode", own=own)


async def valid_fileproto(_host: Host, uri: str) -> bool:
    """Return whether an address is one that a device has files from: of ``salt://`` or ``file://``.

    CLI Example:

        outstation run '*' config.valid_fileproto salt://camera/motion.conf
    """
    scheme, mark, _ = uri.partition("://")
    return bool(mark) and scheme.lower() in PROTOCOLS


async def _pillar(own: Own, omitted: bool) -> dict[str, Any]:
    found: dict[str, Any] = {} if omitted else masked(as_json(await own.pillar.load_or_none()))
    return found


async def manage_mode(_host: Host, mode: str | int | None) -> str | None:
    """Return a file mode as four octal digits.

    CLI Example:

        outstation run '*' config.manage_mode 644
    """
    return None if mode is None else (str(mode).lstrip("0Oo") or "0").rjust(4, "0")
