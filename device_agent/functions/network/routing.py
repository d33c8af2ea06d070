"""Routes, neighbours and connections."""

from __future__ import annotations

import ipaddress
import itertools
from typing import Any, Literal

from device_agent import system_text
from device_agent.commands import look
from device_agent.ended import Ended, FunctionFailed
from device_agent.host import Host
from device_agent.readings import routes as reading
from device_agent.readings.sockets import ESTABLISHED, Connection, connections, holders

CONNECTIONS_NAMED = 1000
"""Connections listed at most; a busy server has more than a return can carry."""

PROTOCOLS = ("tcp", "tcp6", "udp", "udp6")
COMPLETE = 0x2
"""The bit of /proc/net/arp for a neighbour that has answered."""

_ORDER = "dd if=/proc/self/exe bs=1 skip=5 count=1 2>/dev/null; echo; "
_SOCKETS = _ORDER + f"cd /proc/net; for f in {' '.join(PROTOCOLS)}; do echo '%%'; cat $f 2>/dev/null; done"
_HOLDERS = """
for p in /proc/[0-9]*; do if read -r n <"$p/comm"; then echo "${p#/proc/} $n"; fi 2>/dev/null; done
echo '%%'
ls -l /proc/[0-9]*/fd 2>/dev/null | grep -e '^/proc/' -e 'socket:'
"""

Family = Literal["inet", "inet6"]


async def routes(host: Host, family: Family | None = None) -> list[dict[str, Any]]:
    """Return the routes of one family, or of both.

    CLI Example:

        outstation run '*' network.routes
        outstation run '*' network.routes family=inet6
    """
    return [route.shown() for route in await _routes(host, family)]


async def default_route(host: Host, family: Family | None = None) -> list[dict[str, Any]]:
    """Return the routes that everything without a route of its own takes.

    CLI Example:

        outstation run '*' network.default_route
    """
    return [route.shown() for route in await _routes(host, family) if route.default]


async def get_route(host: Host, ip: str) -> dict[str, Any]:
    """Return the way to an address: the interface, the gateway if there is one, and which address of ours is used.

    CLI Example:

        outstation run '*' network.get_route 10.10.10.10
    """
    try:
        address = ipaddress.ip_address(ip)
    except ValueError as error:
        raise FunctionFailed(f"{ip!r} is no address: {error}") from error
    answer = (await look(host, 'exec ip route get "$1"', str(address))).must().out
    words = system_text.words(answer.replace("local ", "", 1))
    pairs = dict(itertools.pairwise(words))
    return {
        "destination": words[0] if words else str(address),
        "gateway": pairs.get("via"),
        "interface": pairs.get("dev"),
        "source": pairs.get("src"),
    }


async def arp(host: Host) -> dict[str, str]:
    """Return the neighbours that have answered: address by hardware address.

    CLI Example:

        outstation run '*' network.arp
    """
    rows = [system_text.words(line) for line in system_text.lines((await look(host, "cat /proc/net/arp")).out)[1:]]
    return {row[3]: row[0] for row in rows if len(row) >= 6 and int(row[2], 16) & COMPLETE}


async def netstat(host: Host) -> Ended:
    """Return the connections and listeners of TCP and UDP, with who holds them as far as this account may see that.

    At most 1,000 of them; when there are more, the reason beside the outcome says how many.

    CLI Example:

        outstation run '*' network.netstat
    """
    found = await _connections(host)
    names, _, listing = (await look(host, _HOLDERS)).out.partition("\n%%\n")
    programs = holders(listing, names)
    rows = [connection.shown(programs) for connection in found[:CONNECTIONS_NAMED]]
    cut = len(found) > CONNECTIONS_NAMED
    return Ended(rows, why=f"the first {CONNECTIONS_NAMED} of {len(found)} connections" if cut else "")


async def active_tcp(host: Host) -> dict[str, dict[str, Any]]:
    """Return the established connections of TCP, numbered from 0; at most 1,000.

    CLI Example:

        outstation run '*' network.active_tcp
    """
    found = [each for each in await _connections(host) if each.proto.startswith("tcp") and each.state == ESTABLISHED]
    return {
        str(number): {
            "local_addr": each.local[0],
            "local_port": each.local[1],
            "remote_addr": each.remote[0],
            "remote_port": each.remote[1],
        }
        for number, each in enumerate(found[:CONNECTIONS_NAMED])
    }


async def _routes(host: Host, family: Family | None) -> list[reading.Route]:
    answer = (await look(host, f"{_ORDER} cat /proc/net/route; echo '%%'; cat /proc/net/ipv6_route")).out
    mark, _, rest = answer.partition("\n")
    text, _, text6 = rest.partition("%%\n")
    four = reading.four(text, reading.byte_order(mark)) if family != "inet6" else []
    return four + (reading.six(text6) if family != "inet" else [])


async def _connections(host: Host) -> list[Connection]:
    mark, *texts = (await look(host, _SOCKETS)).out.split("%%\n")
    order = reading.byte_order(mark)
    found = [connections(proto, text, order) for proto, text in zip(PROTOCOLS, texts, strict=False)]
    return [connection for each in found for connection in each]
