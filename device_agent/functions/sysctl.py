"""Parameters of the kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from device_agent import system_text, text_files
from device_agent.commands import ask, do, one_of, word
from device_agent.ended import FunctionFailed
from device_agent.file_changes import one_change_at_a_time
from device_agent.host import Host

SYSTEMD_CONFIG = "/etc/sysctl.d/99-salt.conf"
"""Salt's, so that both write the same line and neither overrules the other."""

OTHER_CONFIG = "/etc/sysctl.conf"
_EXCHANGED = str.maketrans("./", "/.")
HEAD = "#\n# Kernel sysctl configuration\n#\n"


async def default_config(host: Host) -> str:
    """Return the file that ``sysctl.persist`` writes when it is not told one.

    CLI Example:

        outstation run '*' sysctl.default_config
    """
    return SYSTEMD_CONFIG if await host.stat("/run/systemd/system") else OTHER_CONFIG


async def show(host: Host, config_file: str | Literal[False] = False) -> dict[str, str]:
    """Return all parameters with their values, or those that a file sets.

    CLI Example:

        outstation run '*' sysctl.show
        outstation run '*' sysctl.show /etc/sysctl.conf
    """
    if config_file:
        text = await text_files.read_if_there(host, config_file)
        return dict(pair for line in system_text.lines(text) for pair in _pair(line))
    # Some parameters cannot be read by anybody, which is no failure of the rest.
    said = await ask(host, await one_of(host, "sysctl"), "-a")
    return dict(line.split(" = ", 1) for line in system_text.lines(said.out) if " = " in line)


async def get(host: Host, name: str) -> str:
    """Return the value of one parameter.

    CLI Example:

        outstation run '*' sysctl.get net.ipv4.ip_forward
    """
    if _leaves(word(name, "the name")):
        raise FunctionFailed(f"{name!r} is no parameter: it has '..' in it; sysctl.show names them all")
    if "=" in name:
        raise FunctionFailed(f"{name!r} is no parameter: sysctl would set it; sysctl.assign does that")
    return (await _sysctl(host, "-n", name)).rstrip("\n")


async def assign(host: Host, name: str, value: str | int) -> dict[str, str]:
    """Set one parameter until the next start of the device, and return it with its value.

    CLI Example:

        outstation run '*' sysctl.assign net.ipv4.ip_forward 1
    """
    path = "/proc/sys/" + word(name, "the name").translate(_EXCHANGED)
    if _leaves(name) or await host.stat(path) is None:
        raise FunctionFailed(f"this kernel has no parameter {name}; sysctl.show names them all")
    await _sysctl(host, "-w", f"{name}={value}")
    now = await get(host, name)
    if _words(now) != _words(value):
        raise FunctionFailed(f"{name} is {now!r} although the kernel took {str(value)!r} without a word")
    return {name: now}


async def _config_of(host: Host, arguments: Mapping[str, Any]) -> str:
    return arguments["config"] or await default_config(host)


@one_change_at_a_time(_config_of)
async def persist(host: Host, name: str, value: str | int, config: str | None = None) -> str:
    """Set one parameter now and at every start of the device, and return ``Updated`` or ``Already set``.

    CLI Example:

        outstation run '*' sysctl.persist net.ipv4.ip_forward 1
    """
    path = config or await default_config(host)
    text = await text_files.read_if_there(host, path)
    line = f"{word(name, 'the name')} = {value}"
    if not system_text.is_one_line(line):
        raise FunctionFailed("a parameter is one line")
    lines, found, same = [], False, False
    for old in system_text.lines(text or HEAD):
        pair = next(iter(_pair(old)), ("", ""))
        if pair[0] != name:
            lines.append(old)
        elif not found:
            found, same = True, _words(pair[1]) == _words(value)
            lines.append(old if same else line)
    if same:
        if _words(await get(host, name)) == _words(value):
            return "Already set"
        await assign(host, name, value)
        return "Updated"
    await assign(host, name, value)
    if await host.stat(path) is None:
        await do(host, "mkdir", "-p", path.rpartition("/")[0] or "/")
    await text_files.write(host, path, "".join(f"{each}\n" for each in [*lines, *([] if found else [line])]))
    return "Updated"


def _leaves(name: str) -> bool:
    """Whether sysctl would look for a parameter outside of /proc/sys: it takes '.' for '/', or the reverse."""
    return any(".." in path.split("/") for path in (name, name.translate(_EXCHANGED)))


async def _sysctl(host: Host, *words: str) -> str:
    return (await do(host, await one_of(host, "sysctl"), *words)).out


def _pair(line: str) -> list[tuple[str, str]]:
    name, parted, value = line.strip().partition("=")
    return [(name.strip().removeprefix("-"), value.strip())] if parted and name[:1] not in {"#", ";", ""} else []


def _words(value: str | int) -> str:
    return re.sub(r"\s+", "\t", str(value).strip())
