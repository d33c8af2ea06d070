"""Routes, from /proc/net/route and /proc/net/ipv6_route, and what resolv.conf(5) says."""

from __future__ import annotations

import ipaddress
from typing import Any, Literal

from msgspec import Struct

from device_agent import system_text

UP = 0x1
GATEWAY = 0x2
HOST = 0x4
REJECT = 0x200
NO_NEXT_HOP = 0x200000
SEARCHED = 16
_LETTERS = ((UP, "U"), (GATEWAY, "G"), (HOST, "H"))


class Route(Struct, frozen=True):
    """One route."""

    six: bool
    destination: str
    prefix: int
    gateway: str
    flags: int
    interface: str
    metric: int

    @property
    def default(self) -> bool:
        """Whether everything without a route of its own goes here."""
        return self.prefix == 0

    @property
    def letters(self) -> str:
        """The flags as netstat(8) writes them."""
        begun = "!" if self.flags & REJECT else "".join(letter for bit, letter in _LETTERS if self.flags & bit)
        return begun + ("n" if self.six and self.flags & NO_NEXT_HOP else "")

    def shown(self) -> dict[str, Any]:
        """As ``network.routes`` shows it."""
        if self.six:
            return {
                "addr_family": "inet6",
                "destination": f"{self.destination}/{self.prefix}",
                "gateway": self.gateway,
                "netmask": "",
                "flags": self.letters,
                "interface": self.interface,
            }
        return {
            "addr_family": "inet",
            "destination": self.destination,
            "gateway": self.gateway,
            "netmask": str(ipaddress.IPv4Network((0, self.prefix)).netmask),
            "flags": self.letters,
            "interface": self.interface,
        }


def four(text: str, order: Literal["little", "big"] = "little") -> list[Route]:
    """The IPv4 routes of /proc/net/route, whose numbers are in the byte order of the machine."""
    found = []
    for line in system_text.lines(text)[1:]:
        words = system_text.words(line)
        if len(words) < 8:
            continue
        try:
            destination, gateway, mask = (_address(words[place], order) for place in (1, 2, 7))
            flags, metric = int(words[3], 16), int(words[6])
        except ValueError:
            continue
        prefix = int(mask).bit_count()
        found.append(Route(False, str(destination), prefix, str(gateway), flags, words[0], metric))
    return found


def six(text: str) -> list[Route]:
    """The IPv6 routes of /proc/net/ipv6_route."""
    found = []
    for line in system_text.lines(text):
        words = system_text.words(line)
        if len(words) != 10:
            continue
        try:
            destination, gateway = (ipaddress.IPv6Address(int(words[place], 16)) for place in (0, 4))
            prefix, metric, flags = int(words[1], 16), int(words[5], 16), int(words[8], 16)
        except ValueError:
            continue
        found.append(Route(True, str(destination), prefix, str(gateway), flags, words[9], metric))
    return found


def gateways(routes: list[Route], routes6: list[Route]) -> dict[str, Any]:
    """``ip_gw``, ``ip4_gw`` and ``ip6_gw``: the address of the nearest way out, or False."""
    found = []
    for each in (routes, routes6):
        ways = sorted(
            (route for route in each if route.default and route.flags & UP and not route.flags & REJECT),
            key=lambda route: route.metric,
        )
        way: str | bool = False
        if ways:
            way = ways[0].gateway if ways[0].flags & GATEWAY else True
        found.append(way)
    return {"ip_gw": bool(found[0] or found[1]), "ip4_gw": found[0], "ip6_gw": found[1]}


def resolver(text: str) -> dict[str, Any]:
    """The name servers and search list of resolv.conf(5)."""
    servers: list[str] = []
    words: dict[str, list[str]] = {"search": [], "options": [], "sortlist": []}
    domain = ""
    for line in system_text.lines(text):
        key, *values = system_text.words(line.partition("#")[0].partition(";")[0]) or [""]
        if key == "nameserver" and values:
            servers.append(values[0])
        elif key == "domain" and values:
            domain = values[0]
        elif key in words:
            words[key] = values[:SEARCHED]
    servers = servers[:SEARCHED]
    return {
        "nameservers": servers,
        "ip4_nameservers": [server for server in servers if ":" not in server],
        "ip6_nameservers": [server for server in servers if ":" in server],
        "sortlist": words["sortlist"],
        "domain": domain,
        "search": words["search"],
        "options": words["options"],
    }


def _address(text: str, order: Literal["little", "big"]) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(text), order))


def byte_order(mark: str) -> Literal["little", "big"]:
    """The byte order of a machine from the sixth byte of one of its programs, elf(5): 1 little, 2 big."""
    return "big" if "\x02" in mark else "little"
