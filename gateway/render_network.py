"""Salt's filters of addresses and networks: the same answer for the same text, and no network is asked.

Source: ``salt/utils/network.py`` of Salt 3008.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.render_yaml import VALUES, TooLarge

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
VERSIONS: Final = (4, 6)

_PROPERTIES: Final[Mapping[str, str]] = {
    "global": "is_private",
    "public": "is_private",
    "link-local": "is_link_local",
    "linklocal": "is_link_local",
    "link_local": "is_link_local",
    "ll": "is_link_local",
    "loopback": "is_loopback",
    "lo": "is_loopback",
    "multicast": "is_multicast",
    "private": "is_private",
    "reserved": "is_reserved",
    "site-local": "is_site_local",
    "site_local": "is_site_local",
    "sl": "is_site_local",
    "unspecified": "is_unspecified",
}
_OPPOSITE: Final = frozenset({"global", "public"})
"""Options that hold where the property does not."""


def _parsed(value: Any) -> Address | Interface | None:
    for read in (ipaddress.ip_address, ipaddress.ip_interface):
        try:
            found: Address | Interface = read(value)
        except ValueError:
            continue
        return found
    return None


def _fitting(value: Any, version: int, options: str | None) -> str | None:
    """The address as text where it is of this version and has each property that the options name."""
    found = _parsed(value)
    if found is None or found.version != version:
        return None
    for option in (option.strip() for option in options.split(",")) if options else []:
        name = _PROPERTIES.get(option)
        if name is not None and bool(getattr(found, name, False)) is (option in _OPPOSITE):
            return None
    return str(found)


def _is(version: int) -> Callable[..., bool]:
    def checked(value: Any, options: str | None = None) -> bool:
        return _fitting(value, version, options) is not None

    return checked


def is_ip(value: Any, options: str | None = None) -> bool:
    return any(_fitting(value, version, options) is not None for version in VERSIONS)


def _of_version(version: int) -> Callable[..., Any]:
    def chosen(value: Any, options: str | None = None) -> Any:
        if isinstance(value, (str, bytes)):
            return _fitting(value, version, options)
        if isinstance(value, (list, tuple, Iterator)):
            found = (_fitting(each, version, options) for each in value)
            return [each for each in found if each is not None]
        return None

    return chosen


ipv4: Final = _of_version(4)
ipv6: Final = _of_version(6)


def ipaddr(value: Any, options: str | None = None) -> Any:
    if isinstance(value, Iterator):
        value = list(value)
    one, other = ipv4(value, options), ipv6(value, options)
    return one or other if one is None or other is None else one + other


def _mapped(make: Callable[[str], Any]) -> Callable[..., Any]:
    """A filter of one address, or of each in a list; of nothing where none is an address."""

    def mapped(value: Any, options: str | None = None, version: int | None = None) -> Any:
        chosen = {None: ipaddr, 4: ipv4, 6: ipv6}.get(version)
        found = None if chosen is None else chosen(value, options)
        if not found:
            return None
        return [make(each) for each in found] if isinstance(found, list) else make(found)

    return mapped


def _hosts(text: str) -> list[str]:
    network = ipaddress.ip_network(text, strict=False)
    if network.num_addresses > VALUES:
        raise TooLarge(f"network_hosts of {text} has {network.num_addresses} addresses, at most {VALUES}")
    return [str(host) for host in network.hosts()]


def filter_by_networks(values: Any, networks: Sequence[str] | None) -> Any:
    if networks is None:
        return values
    parsed = [ipaddress.ip_network(network) for network in networks]

    def within(addresses: Sequence[Any]) -> list[Any]:
        return [each for each in addresses for network in parsed if ipaddress.ip_address(each) in network]

    if isinstance(values, Mapping):
        return {name: within(addresses) for name, addresses in values.items()}
    if isinstance(values, Sequence):
        return within(values)
    raise ValueError(f"filter_by_networks takes a list or a mapping of lists, this is a {type(values).__name__}")


def ipwrap(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [ipwrap(each) if not isinstance(each, (list, tuple)) else each for each in value]
    return f"[{ipaddress.ip_address(value)}]" if _fitting(value, 6, None) else value


def mac_str_to_bytes(text: str) -> bytes:
    digits = text.replace(text[2], "") if len(text) == 17 else text
    if len(digits) != 12:
        raise ValueError(f"{text[:40]!r} is no MAC: 52:54:00:12:34:56 or 525400123456")
    return bytes(int(digits[at : at + 2], 16) for at in range(0, 12, 2))


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "filter_by_networks": filter_by_networks,
    "ip_host": _mapped(lambda text: str(ipaddress.ip_interface(text))),
    "ipaddr": ipaddr,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "ipwrap": ipwrap,
    "is_ip": is_ip,
    "is_ipv4": _is(4),
    "is_ipv6": _is(6),
    "mac_str_to_bytes": mac_str_to_bytes,
    "network_hosts": _mapped(_hosts),
    "network_size": _mapped(lambda text: ipaddress.ip_network(text, strict=False).num_addresses),
}
