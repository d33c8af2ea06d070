"""Other machines as seen from the device, and the device's own name."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from device_agent import host_name, system_text, text_files
from device_agent.commands import NOT_THERE, NotOver, ask, look
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.host_name import HostName
from device_agent.peer_name import PeerName
from device_agent.readings.machine import full_name

PINGS = 4
PING_SECONDS = 5
TRACE_SECONDS = 120.0
LET_GO_SECONDS = 1.0
Port = Annotated[int, Meta(ge=1, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=60)]

_HOP = re.compile(r"^\s*(\d+)\s+(.*)$")
_NAMED = re.compile(r"(?<!\S)(\S+) \(([0-9A-Fa-f.:]+)\)")
_MILLISECONDS = re.compile(r"(?<![\d.])(\d+(?:\.\d*)?) ms")


async def ping(
    _host: Host,
    host: PeerName,
    timeout: bool | Annotated[int, Meta(ge=1, le=60)] = False,
    return_boolean: bool = False,
) -> str | bool:
    """Ping a machine four times and return what ping says, or with ``return_boolean`` whether it answered.

    ``timeout`` is how many seconds each answer may take.

    CLI Example:

        outstation run '*' network.ping archlinux.org
        outstation run '*' network.ping 10.0.0.1 timeout=3 return_boolean=True
    """
    wait = PING_SECONDS if timeout is False or timeout is True else timeout
    words = ["ping", "-c", str(PINGS), *([] if timeout is False else ["-W", f"{wait:d}"]), host]
    try:
        said = await ask(_host, *words, timeout=(wait + 1) * PINGS + 5)
    except NotOver:
        if return_boolean:
            return False
        raise
    text = (said.out + said.err).strip()
    if said.returncode == NOT_THERE or "not permitted" in text:
        raise FunctionFailed(f"this host cannot ping: {text[-400:]}", said.returncode)
    return said.ok if return_boolean else text


async def traceroute(_host: Host, host: PeerName) -> list[dict[str, Any]]:
    """Return the machines on the way to another one, with how many milliseconds each of three tries took.

    A machine that answered none of them has a ``*`` for its name and no more.

    CLI Example:

        outstation run '*' network.traceroute archlinux.org
    """
    answer = (await ask(_host, "traceroute", host, timeout=TRACE_SECONDS)).must().out
    found = []
    for line in system_text.lines(answer)[1:]:
        hop = _HOP.match(line)
        if hop is None:
            continue
        row: dict[str, Any] = {"count": int(hop[1]), "hostname": "*"}
        if named := _NAMED.search(hop[2]):
            row |= {"hostname": named[1], "ip": named[2]}
        tries = _MILLISECONDS.findall(hop[2])[:3]
        found.append(row | {f"ms{number}": float(tried) for number, tried in enumerate(tries, 1)})
    return found


async def dig(_host: Host, host: PeerName) -> str:
    """Ask the device's name server for a name and return what ``dig`` says, or ``nslookup`` where there is no ``dig``.

    CLI Example:

        outstation run '*' network.dig archlinux.org
    """
    script = 'if command -v dig >/dev/null 2>&1; then dig "$1"; else nslookup "$1"; fi'
    return (await look(_host, script, host)).must().out.strip()


async def connect(
    _host: Host,
    host: PeerName,
    port: Port | None = None,
    proto: Literal["tcp"] = "tcp",
    timeout: Seconds = 10.0,
) -> dict[str, Any]:
    """Return whether the device can connect to a port of another machine, or of itself.

    CLI Example:

        outstation run '*' network.connect archlinux.org 80
        outstation run '*' network.connect 127.0.0.1 554 timeout=3
    """
    if port is None:
        raise FunctionFailed("a port is needed")
    try:
        async with asyncio.timeout(timeout):
            _, writer = await _host.connect(port, address=host)
    except (OSError, TimeoutError):
        return {"result": False, "comment": f"Unable to connect to {host} ({host}) on {proto} port {port}"}
    writer.close()
    try:
        async with asyncio.timeout(LET_GO_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        pass  # It was connected; how it ends is of no interest.
    return {"result": True, "comment": f"Successfully connected to {host} ({host}) on {proto} port {port}"}


async def get_hostname(host: Host) -> str:
    """Return the device's host name.

    CLI Example:

        outstation run '*' network.get_hostname
    """
    return await host_name.name_of(host)


async def get_fqdn(host: Host) -> str:
    """Return the host name with its domain, as hosts(5) or resolv.conf(5) give it; no name server is asked.

    CLI Example:

        outstation run '*' network.get_fqdn
    """
    resolver = await text_files.look(host, "/etc/resolv.conf", must=False)
    return full_name(await host_name.name_of(host), await text_files.look(host, "/etc/hosts", must=False), resolver)


async def mod_hostname(host: Host, hostname: HostName) -> bool:
    """Change the device's host name, now and for its next start, and in /etc/hosts beside its address.

    CLI Example:

        outstation run 'cam-1' network.mod_hostname cam-17.site.example
    """
    await host_name.rename(host, hostname)
    return True
