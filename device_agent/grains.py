"""Grains: the facts a device reports about itself, under Salt's names. What cannot be read is left out."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import platform
import re
import socket
import struct
import sys
from pathlib import Path
from typing import Any

INTERFACES_NAMED = 64
"""Interfaces listed at most; a machine with hundreds of bridges would fill the message with them."""

SIOCGIFADDR = 0x8915
"""The Linux request for an interface's IPv4 address, netdevice(7)."""

WORD_CHARACTERS = 64
UNWRITTEN = frozenset(
    {"", "0", "0123456789", "123456789", "default string", "none", "not specified", "system serial number"}
    | {"system product name", "to be filled by o.e.m."}
)
"""What makers leave in place of a serial number or a model, in lower case."""

OS_NAMES = {
    "alpine": "Alpine",
    "arch": "Arch",
    "centos": "CentOS",
    "debian": "Debian",
    "fedora": "Fedora",
    "openwrt": "OpenWrt",
    "raspbian": "Raspbian",
    "rhel": "RedHat",
    "ubuntu": "Ubuntu",
}
"""``ID`` of os-release to Salt's ``os``; for another id it is the first word of ``NAME``."""

OS_FAMILIES = {
    "debian": "Debian",
    "rhel": "RedHat",
    "fedora": "RedHat",
    "suse": "Suse",
    "arch": "Arch",
    "alpine": "Alpine",
}


def local_grains(host_id: str, root: Path = Path("/")) -> dict[str, Any]:
    """The facts of this machine. ``root`` is where its files are, for a machine seen from outside."""
    uname = os.uname()
    grains: dict[str, Any] = {
        "id": host_id,
        "kernel": uname.sysname,
        "kernelrelease": uname.release,
        "kernelversion": uname.version,
        "cpuarch": uname.machine,
        "nodename": uname.nodename,
        "host": uname.nodename.partition(".")[0],
        "num_cpus": os.cpu_count() or 1,
        "pythonversion": [int(part) for part in platform.python_version_tuple()[:2]] + [sys.version_info.micro],
    }
    for part in (_system, _memory, _machine, _addresses):
        grains |= part(root)
    return grains


def machine_serial(root: Path = Path("/")) -> str:
    """The serial number of this machine as its maker wrote it, or its host name where there is none."""
    return _printed(root, "serial-number", "product_serial") or socket.gethostname()[:WORD_CHARACTERS]


def machine_model(root: Path = Path("/")) -> str:
    """The model of this machine as its maker wrote it; empty where there is none."""
    return _printed(root, "model", "product_name")


def _printed(root: Path, node: str, attribute: str) -> str:
    """What the maker wrote: in the device tree of a board, or in the DMI table of a PC, sysfs(5)."""
    text = _read(root / "proc/device-tree" / node, root / "sys/class/dmi/id" / attribute)
    word = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return "" if word.lower() in UNWRITTEN else word[:WORD_CHARACTERS]


def _system(root: Path) -> dict[str, Any]:
    """Which distribution, from os-release(5)."""
    facts: dict[str, str] = {}
    for line in _read(root / "etc/os-release", root / "usr/lib/os-release").splitlines():
        key, _, value = line.strip().partition("=")
        facts[key] = value.strip("\"'")
    name, identity = facts.get("NAME", "Linux"), facts.get("ID", "linux")
    family = next(
        (OS_FAMILIES[word] for word in [identity, *facts.get("ID_LIKE", "").split()] if word in OS_FAMILIES), None
    )
    system: dict[str, Any] = {
        "os": OS_NAMES.get(identity) or name.partition(" ")[0],
        "os_family": family or name.partition(" ")[0],
        "osfullname": name,
        "osrelease": facts.get("VERSION_ID", ""),
        "oscodename": facts.get("VERSION_CODENAME", ""),
    }
    major = system["osrelease"].partition(".")[0]
    return system | ({"osmajorrelease": int(major)} if major.isdecimal() else {})


def _memory(root: Path) -> dict[str, Any]:
    """``mem_total`` and ``swap_total`` in MiB, from proc(5)."""
    found = dict(re.findall(r"^(MemTotal|SwapTotal):\s*(\d{1,15}) kB", _read(root / "proc/meminfo"), re.MULTILINE))
    names = {"mem_total": "MemTotal", "swap_total": "SwapTotal"}
    return {name: int(found[key]) // 1024 for name, key in names.items() if key in found}


def _machine(root: Path) -> dict[str, Any]:
    """The id made at installation, machine-id(5)."""
    identity = _read(root / "etc/machine-id").strip()
    return {"machine_id": identity} if identity else {}


def _addresses(root: Path) -> dict[str, Any]:
    """Addresses by interface and all together, without asking any name server."""
    names = [name for _, name in socket.if_nameindex()][:INTERFACES_NAMED]
    four = {name: [address] for name in names if (address := _address(name))}
    six: dict[str, list[str]] = {}
    for digits, name in re.findall(r"^([0-9a-f]{32}) .* (\S+)$", _read(root / "proc/net/if_inet6"), re.MULTILINE):
        if name in names:
            six.setdefault(name, []).append(str(ipaddress.IPv6Address(int(digits, 16))))
    return {
        "ip4_interfaces": four,
        "ip6_interfaces": six,
        "ipv4": sorted(address for addresses in four.values() for address in addresses),
        "ipv6": sorted(address for addresses in six.values() for address in addresses),
    }


def _address(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None  # An interface without an IPv4 address.
    return socket.inet_ntoa(answer[20:24])


def _read(*paths: Path) -> str:
    """The start of the first of these files that is there."""
    for path in paths:
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                return file.read(65536)
        except OSError:
            continue
    return ""
