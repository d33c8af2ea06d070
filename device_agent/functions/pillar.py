"""The device's own pillar. Values are shown as asterisks unless ``unmask=True`` asks for them, as in Salt 3008."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any

from msgspec import Meta

from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.own import Own
from device_agent.pillar import as_json, masked
from device_agent.traverse import ABSENT, traversed

Delimiter = Annotated[str, Meta(min_length=1)]


async def items(
    host: Host,
    *args: str,
    pillar: dict[str, Any] | None = None,
    pillarenv: str | None = None,
    saltenv: str | None = None,
    unmask: bool | None = None,
    own: Own,
) -> Any:
    """Return the whole pillar, compiled now; with names only these. ``pillar`` is laid over it.

    CLI Example:

        outstation run 'cam-7' pillar.items
        outstation run 'cam-7' pillar.items unmask=True
    """
    if args:
        return await item(host, *args, pillarenv=pillarenv, saltenv=saltenv, unmask=unmask, own=own)
    return _shown(await own.pillar.ask(pillarenv, pillar), unmask)


async def data(
    host: Host,
    *args: str,
    pillar: dict[str, Any] | None = None,
    pillarenv: str | None = None,
    saltenv: str | None = None,
    unmask: bool | None = None,
    own: Own,
) -> Any:
    """Return the whole pillar, as ``pillar.items`` does.

    CLI Example:

        outstation run 'cam-7' pillar.data
    """
    return await items(host, *args, pillar=pillar, pillarenv=pillarenv, saltenv=saltenv, unmask=unmask, own=own)


async def get(
    _host: Host,
    key: str,
    default: Any = "",
    merge: bool = False,
    merge_nested_lists: bool | None = None,
    delimiter: Delimiter = ":",
    pillarenv: str | None = None,
    saltenv: str | None = None,  # noqa: ARG001 - Salt's argument, which Salt ignores too
    unmask: bool | None = None,
    *,
    own: Own,
) -> Any:
    """Return one value of the pillar in memory, or the default; keys inside others are parted by ':'.

    With ``merge`` a mapping or a list is laid over the default. With ``pillarenv`` it is compiled now.

    CLI Example:

        outstation run 'cam-7' pillar.get onvif:user
        outstation run 'cam-7' pillar.get onvif:password unmask=True
    """
    found = traversed(await _pillar(own, pillarenv), key, delimiter)
    if merge and isinstance(default, dict) and isinstance(found, Mapping):
        return _shown(_laid_over(deepcopy(default), found, lists=bool(merge_nested_lists)), unmask)
    if merge and isinstance(default, list) and isinstance(found, list):
        return _shown([*default, *(each for each in found if each not in default)], unmask)
    return _shown(default if found is ABSENT else found, unmask)


async def item(
    _host: Host,
    *args: str,
    default: Any = None,
    delimiter: Delimiter | None = None,
    pillarenv: str | None = None,
    saltenv: str | None = None,  # noqa: ARG001 - Salt's argument, which Salt ignores too
    unmask: bool | None = None,
    own: Own,
) -> Any:
    """Return several values of the pillar in memory by name.

    CLI Example:

        outstation run 'cam-7' pillar.item onvif ntp:servers
    """
    pillar = await _pillar(own, pillarenv)
    found = {name: traversed(pillar, name, delimiter or ":") for name in args}
    instead = "" if default is None else default
    return _shown({name: instead if value is ABSENT else value for name, value in found.items()}, unmask)


async def raw(_host: Host, key: str | None = None, unmask: bool | None = None, *, own: Own) -> Any:
    """Return the pillar in memory as it is, or what it has under one name.

    CLI Example:

        outstation run 'cam-7' pillar.raw
        outstation run 'cam-7' pillar.raw key=onvif
    """
    pillar = await own.pillar.load()
    return _shown(pillar.get(key, {}) if key else pillar, unmask)


async def keys(_host: Host, key: str, delimiter: Delimiter = ":", *, own: Own) -> list[str]:
    """Return the names in a mapping of the pillar in memory. It fails when there is none.

    CLI Example:

        outstation run 'cam-7' pillar.keys onvif
    """
    found = traversed(await own.pillar.load(), key, delimiter)
    if found is ABSENT:
        raise FunctionFailed(f"Pillar key not found: {key}")
    if not isinstance(found, Mapping):
        raise FunctionFailed(f"Pillar value in key {key} is not a dict")
    return list(as_json(found))


async def ls(_host: Host, *, pillar: dict[str, Any] | None = None, pillarenv: str | None = None, own: Own) -> list[str]:
    """Return the names at the top of the pillar, compiled now.

    CLI Example:

        outstation run 'cam-7' pillar.ls
    """
    return list(as_json(await own.pillar.ask(pillarenv, pillar)))


async def obfuscate(
    _host: Host, *, pillar: dict[str, Any] | None = None, pillarenv: str | None = None, own: Own
) -> Any:
    """Return the whole pillar, compiled now, with the kind of each value in its place.

    CLI Example:

        outstation run 'cam-7' pillar.obfuscate
    """
    return _kinds(as_json(await own.pillar.ask(pillarenv, pillar)))


async def _pillar(own: Own, env: str | None) -> Mapping[Any, Any]:
    return await own.pillar.load() if env is None else await own.pillar.ask(env)


async def refresh(_host: Host, *, own: Own) -> bool:
    """Ask the station for the pillar anew, as ``saltutil.refresh_pillar`` does.

    CLI Example:

        outstation run '*' pillar.refresh
    """
    await own.pillar.refresh()
    return True


def _shown(value: Any, unmask: bool | None) -> Any:
    return as_json(value) if unmask else masked(as_json(value))


def _kinds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _kinds(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_kinds(inner) for inner in value]
    return f"<{type(value).__name__}>"


def _laid_over(below: dict[Any, Any], above: Mapping[Any, Any], *, lists: bool) -> dict[Any, Any]:
    for name, value in above.items():
        under = below.get(name)
        if isinstance(under, dict) and isinstance(value, Mapping):
            below[name] = _laid_over(under, value, lists=lists)
        elif lists and isinstance(under, list) and isinstance(value, list):
            below[name] = [*under, *(each for each in value if each not in under)]
        else:
            below[name] = value
    return below
