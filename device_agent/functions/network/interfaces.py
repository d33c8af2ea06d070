"""Interfaces and addresses."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from msgspec import Meta

from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.links import interfaces_of
from device_agent.readings.addresses import Address, Interface

InterfaceName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\s/-][^\s/]*$(?!\n)")]
Address4Or6 = ipaddress.IPv4Address | ipaddress.IPv6Address


async def interfaces(host: Host) -> dict[str, Any]:
    """Return all interfaces with their addresses and whether they are up.

    CLI Example:

        outstation run '*' network.interfaces
    """
    return {name: each.shown() for name, each in (await interfaces_of(host)).items()}


async def interface(host: Host, iface: InterfaceName) -> list[dict[str, Any]]:
    """Return the IPv4 addresses of one interface with mask and broadcast address.

    CLI Example:

        outstation run '*' network.interface eth0
    """
    found: list[dict[str, Any]] = (await _one(host, iface)).shown().get("inet", [])
    return found


async def interface_ip(host: Host, iface: InterfaceName) -> str:
    """Return the first IPv4 address of one interface, or nothing when it has none.

    CLI Example:

        outstation run '*' network.interface_ip eth0
    """
    four = (await _one(host, iface)).four
    return four[0].address if four else ""


async def hw_addr(host: Host, iface: InterfaceName) -> str:
    """Return the hardware address of one interface.

    CLI Example:

        outstation run '*' network.hw_addr eth0
    """
    return (await _one(host, iface)).hardware


async def hwaddr(host: Host, iface: InterfaceName) -> str:
    """Return the hardware address of one interface; the same as ``network.hw_addr``.

    CLI Example:

        outstation run '*' network.hwaddr eth0
    """
    return await hw_addr(host, iface)


async def ip_addrs(
    host: Host,
    interface: str | None = None,
    *,
    include_loopback: bool = False,
    cidr: str | None = None,
    type: Literal["public", "private"] | None = None,  # noqa: A002 - Salt's name for it
) -> list[str]:
    """Return the IPv4 addresses of the device, of one interface, in one network, or only public or private ones.

    Those of the loopback network are left out unless ``include_loopback`` is true.

    CLI Example:

        outstation run '*' network.ip_addrs
        outstation run '*' network.ip_addrs cidr=10.0.0.0/8
        outstation run '*' network.ip_addrs eth0 type=private
    """
    found = _addresses(await interfaces_of(host), interface, four=True)
    chosen = _chosen(found, cidr, include_loopback=include_loopback)
    if type is not None:
        chosen = [address for address in chosen if address.is_private == (type == "private")]
    return _shown(chosen)


async def ipaddrs(
    host: Host,
    interface: str | None = None,
    *,
    include_loopback: bool = False,
    cidr: str | None = None,
    type: Literal["public", "private"] | None = None,  # noqa: A002 - Salt's name for it
) -> list[str]:
    """Return the IPv4 addresses of the device; the same as ``network.ip_addrs``.

    CLI Example:

        outstation run '*' network.ipaddrs
    """
    return await ip_addrs(host, interface, include_loopback=include_loopback, cidr=cidr, type=type)


async def ip_addrs6(
    host: Host, interface: str | None = None, *, include_loopback: bool = False, cidr: str | None = None
) -> list[str]:
    """Return the IPv6 addresses of the device, of one interface, or in one network.

    CLI Example:

        outstation run '*' network.ip_addrs6
        outstation run '*' network.ip_addrs6 cidr=2001:db8::/32
    """
    found = _addresses(await interfaces_of(host), interface, four=False)
    return _shown(_chosen(found, cidr, include_loopback=include_loopback))


async def ipaddrs6(
    host: Host, interface: str | None = None, *, include_loopback: bool = False, cidr: str | None = None
) -> list[str]:
    """Return the IPv6 addresses of the device; the same as ``network.ip_addrs6``.

    CLI Example:

        outstation run '*' network.ipaddrs6
    """
    return await ip_addrs6(host, interface, include_loopback=include_loopback, cidr=cidr)


async def subnets(host: Host, interfaces: str | list[str] | None = None) -> list[str]:
    """Return the IPv4 networks that the device, or some of its interfaces, are in; not the loopback network.

    CLI Example:

        outstation run '*' network.subnets
        outstation run '*' network.subnets interfaces=eth1
    """
    return _networks(await interfaces_of(host), interfaces, four=True)


async def subnets6(host: Host) -> list[str]:
    """Return the IPv6 networks that the device is in.

    CLI Example:

        outstation run '*' network.subnets6
    """
    return _networks(await interfaces_of(host), None, four=False)


async def ip_networks(
    host: Host, interface: str | None = None, *, include_loopback: bool = False, verbose: bool = False
) -> list[str] | dict[str, Any]:
    """Return the IPv4 networks that the device is in; with ``verbose`` what each of them is.

    CLI Example:

        outstation run '*' network.ip_networks
        outstation run '*' network.ip_networks interface=eth0 verbose=True
    """
    return await _all_networks(host, interface, include_loopback=include_loopback, verbose=verbose, four=True)


async def ip_networks6(
    host: Host, interface: str | None = None, *, include_loopback: bool = False, verbose: bool = False
) -> list[str] | dict[str, Any]:
    """Return the IPv6 networks that the device is in; with ``verbose`` what each of them is.

    CLI Example:

        outstation run '*' network.ip_networks6
    """
    return await _all_networks(host, interface, include_loopback=include_loopback, verbose=verbose, four=False)


async def in_subnet(host: Host, cidr: str) -> bool:
    """Return whether the device has an address in one network; the loopback network is every device's own.

    CLI Example:

        outstation run '*' network.in_subnet 10.0.0.0/16
    """
    return bool(_chosen(_addresses(await interfaces_of(host), None, four=None), cidr, include_loopback=False))


async def ifacestartswith(host: Host, cidr: str) -> list[str]:
    """Return the interfaces that have an IPv4 address beginning like this.

    CLI Example:

        outstation run '*' network.ifacestartswith 10.0
    """
    found = await interfaces_of(host)
    return [name for name, each in found.items() if any(a.address.startswith(cidr) for a in each.four)]


async def _one(host: Host, iface: str) -> Interface:
    found = await interfaces_of(host)
    if iface not in found:
        known = ", ".join(f'"{name}"' for name in found)
        why = f'Interface "{iface}" not in available interfaces: {known}'
        raise FunctionFailed(why, value=why)
    return found[iface]


def _addresses(found: dict[str, Interface], interface: str | None, *, four: bool | None) -> list[Address]:
    """All of one family, or of both; none when there is no such interface, as in Salt."""
    return [
        address
        for name, each in found.items()
        if interface in {None, name}
        for address in each.addresses
        if four is None or address.six != four
    ]


def _chosen(found: list[Address], cidr: str | None, *, include_loopback: bool) -> list[Address4Or6]:
    network = None if cidr is None else _network(cidr)
    return [
        address
        for address in {_parsed(each) for each in found}
        if (include_loopback or not address.is_loopback) and (network is None or address in network)
    ]


def _shown(chosen: list[Address4Or6]) -> list[str]:
    return [str(address) for address in sorted(chosen, key=int)]


def _networks(found: dict[str, Interface], interfaces: str | list[str] | None, *, four: bool) -> list[str]:
    names = [interfaces] if isinstance(interfaces, str) else interfaces
    kept = {name: each for name, each in found.items() if not names or name in names}
    inside = [address for address in _addresses(kept, None, four=four) if not _parsed(address).is_loopback]
    return sorted({address.network for address in inside})


async def _all_networks(
    host: Host, interface: str | None, *, include_loopback: bool, verbose: bool, four: bool
) -> list[str] | dict[str, Any]:
    found = _addresses(await interfaces_of(host), interface, four=four)
    inside = {a.network for a in found if include_loopback or not _parsed(a).is_loopback}
    names = sorted(inside)
    return {name: _described(name) for name in names} if verbose else names


def _described(name: str) -> dict[str, Any]:
    network = ipaddress.ip_network(name)
    return {
        "address": str(network.network_address),
        "netmask": str(network.netmask),
        "num_addresses": min(network.num_addresses, 2**63 - 1),
        "prefixlen": network.prefixlen,
        "is_loopback": network.is_loopback,
        "is_link_local": network.is_link_local,
        "is_multicast": network.is_multicast,
        "is_private": network.is_private,
        "is_reserved": network.is_reserved,
        "is_unspecified": network.is_unspecified,
    }


def _parsed(address: Address) -> Address4Or6:
    return ipaddress.ip_address(address.address)


def _network(cidr: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(cidr, strict=False)
    except ValueError as error:
        raise FunctionFailed(f"{cidr!r} is no network: {error}") from error
