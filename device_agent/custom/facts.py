"""Facts that a site's own modules tell, beside those of the machine: bounded in time, and each by itself.

A file in ``_grains`` has functions of the form ``async def f(host) -> dict``; what they return is added to the grains,
above those of the machine and of the settings. One that fails, hangs or tells what no message can carry is left out,
and why is kept.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from device_agent.custom.beside import beside
from device_agent.custom.loading import Function
from device_agent.errors import Refused
from device_agent.host import Host
from device_agent.protocol import limits
from device_agent.protocol.carried import carried, refuse
from device_agent.protocol.messages import Grains, encode_value

FUNCTION_SECONDS: Final = 5.0
ALL_SECONDS: Final = 20.0


class FactModules(Protocol):
    """Where the modules are (``modules.CustomModules``)."""

    def hashes(self, kind: str) -> dict[str, bytes]: ...

    async def functions_of(self, path: str) -> dict[str, Function]: ...


async def with_custom(modules: FactModules, host: Host, grains: Grains) -> tuple[Grains, dict[str, str]]:
    """The grains with what the modules tell, and why something is missing, by file."""
    problems: dict[str, str] = {}
    told = dict(grains)
    try:
        async with asyncio.timeout(ALL_SECONDS):
            for path in modules.hashes("grains"):
                await _ask(modules, path, host, told, problems)
    except TimeoutError:
        problems["_grains"] = f"all of _grains together took longer than {ALL_SECONDS:g} s"
    return {**told, **{name: grains[name] for name in ("id",) if name in grains}}, problems


async def _ask(modules: FactModules, path: str, host: Host, told: Grains, problems: dict[str, str]) -> None:
    try:
        functions = await modules.functions_of(path)
    except Refused as refused:
        problems[path] = str(refused)
        return
    for name, function in functions.items():
        where = f"{path}: {name}"
        try:
            async with asyncio.timeout(FUNCTION_SECONDS):
                found = await beside(function, host)
            _add(found, told, where, path, problems)
        except TimeoutError:
            problems[path] = f"{where} took longer than {FUNCTION_SECONDS:g} s"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises, the other facts are told
            problems[path] = f"{where}: {type(error).__name__}: {error}"[:500]


def _add(found: Any, told: Grains, where: str, path: str, problems: dict[str, str]) -> None:
    """Add what a function returned, name by name; a value that no message can carry is a problem of its own."""
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise TypeError("a function of facts returns a dict with names as keys")
    size = len(encode_value(told))
    lost: list[str] = []
    for name, value in found.items():
        try:
            one = carried({name: value}, refuse)
            more = size + len(encode_value(one))
            if more > limits.GRAINS_BYTES:
                raise Refused(
                    "too_large", f"{name[:80]}: the grains would have {more} bytes, at most {limits.GRAINS_BYTES}"
                )
        except Refused as refused:
            lost.append(refused.detail)
            continue
        told.update(one)
        size = more
    if lost:
        problems[path] = f"{where}: {'; '.join(lost)}"[:500]
