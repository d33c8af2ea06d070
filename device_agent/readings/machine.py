"""Which system runs here, from os-release(5) and uname(1), under Salt's names."""

from __future__ import annotations

import re
from typing import Any

from device_agent import system_text

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

SHORT_NAMED = frozenset({"Debian", "Raspbian"})
"""Systems whose ``osfinger`` begins with the short name, as Salt has it."""

WHOLE_RELEASE = frozenset({"Ubuntu"})
"""Systems whose ``osfinger`` ends with the whole release."""

WORD_CHARACTERS = 64
UNWRITTEN = frozenset(
    {"", "0", "0123456789", "123456789", "default string", "none", "not specified", "system serial number"}
    | {"system product name", "to be filled by o.e.m."}
)
"""What makers leave in place of a serial number or a model, in lower case."""

_CODENAME = re.compile(r"\((\w[\w ]*)\)")


def assignments(text: str) -> dict[str, str]:
    """Lines ``NAME=value`` with or without quotes."""
    found = {}
    for line in system_text.lines(text):
        key, mark, value = line.strip().partition("=")
        if mark and not key.startswith("#"):
            found[key.removeprefix("export ").strip()] = value.strip().strip("\"'")
    return found


def system(release: str, openwrt: str = "") -> dict[str, Any]:
    """Which distribution this is."""
    facts, wrt = assignments(release), assignments(openwrt)
    name, identity = facts.get("NAME", wrt.get("DISTRIB_ID", "Linux")), facts.get("ID", "")
    if not identity:
        identity = wrt.get("DISTRIB_ID", "linux").lower()
    words = [identity, *system_text.words(facts.get("ID_LIKE", ""))]
    family = next((OS_FAMILIES[word] for word in words if word in OS_FAMILIES), name.partition(" ")[0])
    number = facts.get("VERSION_ID", wrt.get("DISTRIB_RELEASE", ""))
    bracketed = _CODENAME.search(facts.get("VERSION", ""))
    code = facts.get("VERSION_CODENAME") or (bracketed[1] if bracketed else wrt.get("DISTRIB_CODENAME", ""))
    short = OS_NAMES.get(identity) or name.partition(" ")[0]
    grains: dict[str, Any] = {
        "os": short,
        "os_family": family,
        "osfullname": name,
        "osrelease": number,
        "oscodename": code,
        "lsb_distrib_id": name,
        "lsb_distrib_release": number,
        "lsb_distrib_codename": code,
    }
    if number:
        grains["osrelease_info"] = [int(part) if part.isdecimal() else part for part in number.split(".")]
        major = grains["osrelease_info"][0]
        if isinstance(major, int):
            grains["osmajorrelease"] = major
        prefix = short if short in SHORT_NAMED else name
        grains["osfinger"] = f"{prefix}-{number if short in WHOLE_RELEASE else major}"
    return grains


def kernel(uname: str) -> dict[str, Any]:
    """Kernel, processor and name, from one answer of uname(1) in each line."""
    words = [line.strip() for line in system_text.lines(uname)]
    if len(words) < 5:
        return {}
    names = ("kernel", "kernelrelease", "kernelversion", "cpuarch", "nodename")
    return dict(zip(names, words, strict=False)) | {"localhost": words[4], "host": words[4].partition(".")[0]}


def architecture(text: str) -> str:
    """What packages are made for; opkg names several with a preference, the last is the most special."""
    lines = [system_text.words(line) for line in system_text.lines(text) if line.strip()]
    if not lines:
        return ""
    opkg = [words for words in lines if words[0] == "arch" and len(words) == 3 and words[2].isdecimal()]
    return max(opkg, key=lambda words: int(words[2]))[1] if opkg else lines[0][0]


def full_name(nodename: str, hosts: str, resolver: str) -> str:
    """The name with its domain as hosts(5) or resolv.conf(5) give it; no name server is asked."""
    if "." in nodename:
        return nodename
    for line in system_text.lines(hosts):
        _, *names = system_text.words(line.partition("#")[0]) or [""]
        if nodename in names:
            return next((name for name in names if name.startswith(f"{nodename}.")), nodename)
    found = re.search(r"^domain\s+(\S+)", resolver, re.MULTILINE)
    return f"{nodename}.{found[1].rstrip('.')}" if found and nodename else nodename


def word(text: str) -> str:
    """What a maker wrote into a machine, cut; empty when it only fills the place."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return "" if plain.lower() in UNWRITTEN else plain[:WORD_CHARACTERS]


def hardware(dmi: str, tree: str, cpu: str = "") -> dict[str, Any]:
    """Maker, model, serial number and firmware, of a PC from its DMI table and of a board from its device tree."""
    pc, board = assignments(dmi), assignments(tree)
    found = {
        "manufacturer": pc.get("sys_vendor", ""),
        "productname": board.get("model") or pc.get("product_name", ""),
        "serialnumber": board.get("serial-number") or pc.get("product_serial", "") or _cpu_serial(cpu),
        "biosversion": pc.get("bios_version", ""),
        "biosreleasedate": pc.get("bios_date", ""),
        "boardname": pc.get("board_name", ""),
        "uuid": pc.get("product_uuid", "").lower(),
    }
    return {name: kept for name, value in found.items() if (kept := word(value))}


def _cpu_serial(cpu: str) -> str:
    found = re.search(r"^Serial\s*:\s*([0-9a-fA-F]+)$", cpu, re.MULTILINE)
    return found[1] if found and found[1].strip("0") else ""
