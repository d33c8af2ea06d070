"""Whether a device has an address, or one in a network, by the grains in which it told its addresses.

Salt looks in ``ipv4`` and ``ipv6``. Where a device has no such grain, its interfaces say it: ``ip4_interfaces``,
``ip6_interfaces`` or ``ip_interfaces``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

Address = IPv4Address | IPv6Address


def compile_addresses(text: str) -> Callable[[Mapping[str, Any]], list[str]]:
    """What of a device's addresses is meant: none when it is not. Raises ``ValueError``."""
    meant: Callable[[Address], bool]
    try:
        wanted = ip_address(text)
        version, meant = wanted.version, wanted.__eq__
    except ValueError:
        network = ip_network(text)
        version, meant = network.version, network.__contains__

    def found(grains: Mapping[str, Any]) -> list[str]:
        addresses = map(_address, _told(grains, version))
        return [
            str(address)
            for address in addresses
            if address is not None and address.version == version and meant(address)
        ]

    return found


def _told(grains: Mapping[str, Any], version: int) -> Iterator[str]:
    grain = grains.get(f"ipv{version}")
    if grain is None:
        by_interface = grains.get(f"ip{version}_interfaces", grains.get("ip_interfaces"))
        grain = list(by_interface.values()) if isinstance(by_interface, dict) else None
    for entry in grain if isinstance(grain, (list, tuple)) else [grain]:
        for text in entry if isinstance(entry, (list, tuple)) else [entry]:
            if isinstance(text, str):
                yield text


@lru_cache(maxsize=1024)
def _address(text: str) -> Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None
