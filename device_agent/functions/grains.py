"""The facts a device reports about itself."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from device_agent.host import Host

Delimiter = Annotated[str, Meta(min_length=1)]


async def items(host: Host) -> dict[str, Any]:
    """Return all grains.

    CLI Example:

        outstation run '*' grains.items
    """
    return host.grains


async def get(host: Host, key: str, default: Any = "", delimiter: Delimiter = ":") -> Any:
    """Return one grain, or what is given as default when there is none; keys of nested grains are parted by ':'.

    CLI Example:

        outstation run '*' grains.get os
        outstation run '*' grains.get ip4_interfaces:eth0
    """
    found: Any = host.grains
    for part in key.split(delimiter):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return default
    return found
