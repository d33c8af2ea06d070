"""Arithmetic with addresses, for templates and by hand; the device itself is not asked."""

from __future__ import annotations

import ipaddress

from device_agent.ended import FunctionFailed
from device_agent.host import Host


async def calc_net(_host: Host, ip_addr: str, netmask: str | None = None) -> str:
    """Return the network of an address with its mask, or with the prefix behind a slash.

    CLI Example:

        outstation run '*' network.calc_net 172.17.0.5 255.255.255.240
        outstation run '*' network.calc_net 2a02:f6e:a000:80:84d8:8332:7866:4e07/64
    """
    return str(_interface(ip_addr if netmask is None else f"{ip_addr}/{netmask}").network)


async def convert_cidr(_host: Host, cidr: str) -> dict[str, str | None]:
    """Return network, mask and broadcast address of a network with its prefix.

    CLI Example:

        outstation run '*' network.convert_cidr 172.31.0.0/16
    """
    network = _interface(cidr).network
    wide = network.broadcast_address if network.version == 4 else None
    return {
        "network": str(network.network_address),
        "netmask": str(network.netmask),
        "broadcast": None if wide is None else str(wide),
    }


async def ip_in_subnet(_host: Host, ip_addr: str, cidr: str) -> bool:
    """Return whether an address is in a network.

    CLI Example:

        outstation run '*' network.ip_in_subnet 172.17.0.4 172.16.0.0/12
    """
    return _address(ip_addr) in _interface(cidr).network


async def is_private(_host: Host, ip_addr: str) -> bool:
    """Return whether an address is for private networks.

    CLI Example:

        outstation run '*' network.is_private 10.0.0.3
    """
    return _address(ip_addr).is_private


async def is_loopback(_host: Host, ip_addr: str) -> bool:
    """Return whether an address is one of a machine for itself.

    CLI Example:

        outstation run '*' network.is_loopback 127.0.0.1
    """
    return _address(ip_addr).is_loopback


async def reverse_ip(_host: Host, ip_addr: str) -> str:
    """Return the name under which DNS knows an address.

    CLI Example:

        outstation run '*' network.reverse_ip 172.17.0.4
    """
    return _address(ip_addr).reverse_pointer


async def iphexval(_host: Host, ip: str) -> str:
    """Return an IPv4 address as hexadecimal digits.

    CLI Example:

        outstation run '*' network.iphexval 10.0.0.1
    """
    address = _address(ip)
    return f"{int(address):08X}" if address.version == 4 else f"{int(address):032X}"


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise FunctionFailed(f"{text!r} is no address: {error}") from error


def _interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    try:
        return ipaddress.ip_interface(text)
    except ValueError as error:
        raise FunctionFailed(f"{text!r} is no address with a mask: {error}") from error
