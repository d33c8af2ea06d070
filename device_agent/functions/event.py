"""Events that a device fires: they go to its station, whose rules see them, and from there to the masters.

What Salt fires on the minion's own bus stays at the station: a device has no rules, engines or readers of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from device_agent.ended import FunctionFailed
from device_agent.errors import OutstationError, Refused
from device_agent.host import Host
from device_agent.own import Own


async def send(
    host: Host,
    tag: str,
    data: dict[str, Any] | None = None,
    preload: dict[str, Any] | None = None,
    with_env: bool | list[str] = False,
    with_grains: bool | list[str] = False,
    with_pillar: bool | list[str] = False,
    with_env_opts: bool = False,
    *,
    own: Own,
    **kwargs: Any,
) -> bool:
    """Send an event to the station, with these data and with what is named beside them, and return ``True``.

    It is kept on the device until the station has it on its disk. The data can have all or some of the environment, the
    grains and the pillar of the device; beside them stand the job and its function, as ``__pub_jid`` and ``__pub_fun``.

    CLI Example:

        outstation run 'cam-7' event.send site/door/opened '{door: north}'
        outstation run 'cam-7' event.send site/lens/dirty reason=rain with_grains='[model]'
    """
    _no_preload(preload)
    sent: dict[str, Any] = {}
    if with_env:
        sent["environ"] = _part(await _environment(host), with_env)
    if with_grains:
        sent["grains"] = _part(host.grains, with_grains)
    if with_pillar:
        sent["pillar"] = _part(await own.pillar.load(), with_pillar)
    if with_env_opts:
        sent |= {"saltenv": "base", "pillarenv": None}
    return await _fire(host, tag, sent | kwargs | (data or {}) | _published(own), own)


async def fire_master(
    host: Host, data: dict[str, Any], tag: str, preload: dict[str, Any] | None = None, *, own: Own
) -> bool:
    """Send an event to the station with these data alone, and return ``True``.

    CLI Example:

        outstation run 'cam-7' event.fire_master '{door: north}' site/door/opened
        outstation run 'cam-*' event.fire_master '{by: hand}' site/cleaned
    """
    _no_preload(preload)
    return await _fire(host, tag, data, own)


async def fire(host: Host, data: dict[str, Any], tag: str, *, own: Own) -> bool:
    """Send an event to the station, where it stays: its rules see it and no master does. Returns ``True``.

    CLI Example:

        outstation run 'cam-7' event.fire '{door: north}' site/door/opened
        outstation run 'cam-*' event.fire '{by: hand}' site/cleaned
    """
    return await _fire(host, tag, data, own, local=True)


async def _fire(host: Host, tag: str, data: dict[str, Any], own: Own, *, local: bool = False) -> bool:
    if own.events is None:
        raise FunctionFailed("there is no station here to take an event", value=False)
    try:
        await own.events.fire(str(host.grains.get("id", "")), tag, data, local=local)
    except Refused as refusal:
        raise FunctionFailed(f"{refusal.reason}: {refusal.detail}", value=False) from None
    except OutstationError as error:
        raise FunctionFailed(error.what, value=False) from None
    return True


def _no_preload(preload: object) -> None:
    # In Salt it stands in the place of what the master knows of the sender.
    if preload:
        raise FunctionFailed(
            "what an event says of its sender is said by the station: preload is not taken", value=False
        )


def _part(whole: Mapping[Any, Any], wanted: bool | list[str]) -> dict[Any, Any]:
    return {key: value for key, value in whole.items() if not isinstance(wanted, list) or key in wanted}


async def _environment(host: Host) -> dict[str, str]:
    shown = await host.run(["cat", "/proc/self/environ"])
    pairs = (each.partition("=") for each in shown.stdout.decode(errors="replace").split("\0"))
    return {name: value for name, sign, value in pairs if sign}


def _published(own: Own) -> dict[str, Any]:
    """What Salt puts beside the data of a job that a master published; not what the caller could say of it."""
    job = own.job
    if job is None:
        return {}
    return {
        "__pub_fun": job.fun,
        "__pub_jid": job.jid,
        "__pub_pid": job.pid,
        "__pub_ret": "",
        "__pub_tgt": job.tgt,
        "__pub_tgt_type": job.tgt_type,
        "__pub_user": job.user,
    }
