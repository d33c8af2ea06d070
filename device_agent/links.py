"""Asks a host for its interfaces: one script, with ``ip`` or with ``ifconfig``."""

from __future__ import annotations

from device_agent.commands import look
from device_agent.host import Host
from device_agent.readings import addresses
from device_agent.readings.addresses import Interface

_SCRIPT = """
if command -v ip >/dev/null 2>&1; then ip -o link; echo '%%'; ip -o addr
else echo '%%ifconfig'; ifconfig -a; fi
"""


async def interfaces_of(host: Host) -> dict[str, Interface]:
    """Every interface of a host by name."""
    answer = (await look(host, _SCRIPT)).out
    links, ifconfig, rest = answer.partition("%%ifconfig\n")
    if ifconfig:
        return addresses.from_ifconfig(rest)
    links, _, found = answer.partition("%%\n")
    return addresses.from_ip(links, found)
