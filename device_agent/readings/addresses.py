"""Interfaces and their addresses, from ``ip -o link`` and ``ip -o addr`` or, where there is no ``ip``, ``ifconfig``."""

from __future__ import annotations

import ipaddress
import re
from itertools import pairwise
from typing import Any

from msgspec import Struct

from device_agent import system_text

_LINK = re.compile(r"^\d+: ([^:\s]+): <([^>]*)>", re.ASCII)
_HARDWARE = re.compile(r"(?<![^\s\\])link/\S+ ((?:[0-9a-f]{2}:)+[0-9a-f]{2})", re.IGNORECASE)
_BLOCK = re.compile(r"\n(?=\S)", re.ASCII)


class Address(Struct, frozen=True):
    """One address of an interface; ``broadcast`` is empty where there is none."""

    address: str
    prefix: int
    broadcast: str = ""
    label: str = ""
    scope: str = ""
    secondary: bool = False

    @property
    def six(self) -> bool:
        """Whether it is an IPv6 address."""
        return ":" in self.address

    @property
    def netmask(self) -> str:
        """The mask of an IPv4 address."""
        return str(ipaddress.IPv4Network((0, self.prefix)).netmask)

    @property
    def network(self) -> str:
        """The network it is in, as in 10.0.0.0/24."""
        return str(ipaddress.ip_interface(f"{self.address}/{self.prefix}").network)


class Interface(Struct):
    """One interface, with its addresses in the order the machine gives them."""

    name: str
    up: bool = False
    hardware: str = ""
    addresses: list[Address] = []

    @property
    def four(self) -> list[Address]:
        """Its IPv4 addresses."""
        return [address for address in self.addresses if not address.six]

    @property
    def six(self) -> list[Address]:
        """Its IPv6 addresses."""
        return [address for address in self.addresses if address.six]

    def shown(self) -> dict[str, Any]:
        """As ``network.interfaces`` shows it."""
        four = [_shown(address) for address in self.four if not address.secondary]
        more = [{"type": "inet", **_shown(address)} for address in self.four if address.secondary]
        six = [{"address": a.address, "prefixlen": str(a.prefix), "scope": a.scope} for a in self.six]
        return (
            {"up": self.up}
            | ({"hwaddr": self.hardware} if self.hardware else {})
            | ({"inet": four} if four else {})
            | ({"inet6": six} if six else {})
            | ({"secondary": more} if more else {})
        )


def _shown(address: Address) -> dict[str, Any]:
    return {
        "address": address.address,
        "netmask": address.netmask,
        "broadcast": address.broadcast or None,
        "label": address.label,
    }


def from_ip(links: str, addresses: str) -> dict[str, Interface]:
    """From ``ip -o link`` and ``ip -o addr``, of iproute2 or of BusyBox."""
    found: dict[str, Interface] = {}
    for line in system_text.lines(links):
        link = _LINK.match(line)
        if link is None:
            continue
        name = link[1].partition("@")[0]
        hardware = _HARDWARE.search(line)
        found[name] = Interface(name, "UP" in link[2].split(","), hardware[1].lower() if hardware else "", [])
    for line in system_text.lines(addresses):
        words = system_text.words(line.replace("\\", " "))
        if len(words) < 4 or words[2] not in {"inet", "inet6"}:
            continue
        name = words[1].partition("@")[0].rstrip(":")
        address = _address(words[3], words[4:])
        if address is not None:
            found.setdefault(name, Interface(name, addresses=[])).addresses.append(address)
    return found


def from_ifconfig(text: str) -> dict[str, Interface]:
    """From ``ifconfig -a`` of BusyBox or net-tools."""
    found: dict[str, Interface] = {}
    for block in _BLOCK.split(text):
        words = system_text.words(block)
        if not words:
            continue
        label = words[0].rstrip(":")
        name = label.partition(":")[0]
        interface = found.setdefault(name, Interface(name, addresses=[]))
        hardware = re.search(r"(?:HWaddr|ether) ((?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2})", block)
        interface.hardware = hardware[1].lower() if hardware else interface.hardware
        if "Local Loopback" in block or "LOOPBACK" in block:
            interface.hardware = interface.hardware or "00:00:00:00:00:00"
        interface.up = interface.up or re.search(r"(^|[\s<,])UP[\s,>]", block) is not None
        four = re.search(r"inet (?:addr:)?([\d.]+)", block)
        mask = re.search(r"(?:Mask:|netmask )([\d.]+)", block)
        wide = re.search(r"(?:Bcast:|broadcast )([\d.]+)", block)
        if four and mask:
            found_at = _address(f"{four[1]}/{mask[1]}", [])
            if found_at is not None:
                interface.addresses.append(
                    Address(found_at.address, found_at.prefix, wide[1] if wide else "", label, "")
                )
        for six, prefix, scope in re.findall(r"inet6 addr: (\S+)/(\d+) Scope:(\w+)", block) or re.findall(
            r"inet6 (\S+)\s+prefixlen (\d+)\s+scopeid 0x[0-9a-f]+<(\w+)>", block
        ):
            known = _address(f"{six}/{prefix}", [])
            if known is not None:
                interface.addresses.append(Address(known.address, known.prefix, scope=scope.lower()))
    return found


def _address(text: str, words: list[str]) -> Address | None:
    """One address with its prefix; beside it stand pairs of a word and its value, and the label last."""
    if "peer" in words[:1]:
        text = f"{text.partition('/')[0]}/{words[1].partition('/')[2] or '32'}"
    try:
        parsed = ipaddress.ip_interface(text)
    except ValueError:
        return None
    pairs = dict(pairwise(words))
    label = ""
    if parsed.version == 4 and "scope" in words:
        rest = words[words.index("scope") + 2 :]
        named = [word for word in rest if word not in {"secondary", "dynamic", "noprefixroute", "deprecated"}]
        label = named[0] if named and named[0] != "valid_lft" else ""
    scope = pairs.get("scope", "")
    return Address(str(parsed.ip), parsed.network.prefixlen, pairs.get("brd", ""), label, scope, "secondary" in words)
