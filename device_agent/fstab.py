"""Lines of /etc/fstab and of the kernel's own table of mounts, fstab(5). Pure."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from device_agent import system_text
from device_agent.readings.mounts import mounts as mounted

BY_PLACE = frozenset(
    {"none", "tmpfs", "sysfs", "proc", "fusectl", "debugfs", "securityfs", "devtmpfs", "cgroup", "nfs", "nfs4"}
    | {"glusterfs", "btrfs", "ceph"}
)
"""File systems of which one device may be in several places: they are known by the place, the others by the device."""


class Mount(Struct, frozen=True):
    """One line."""

    device: str
    name: str
    fstype: str
    opts: str = "defaults"
    dump: int = 0
    pass_num: int = 0

    def line(self) -> str:
        """As it stands in the file."""
        words = [_written(self.device), _written(self.name), _written(self.fstype), _written(self.opts)]
        return "\t".join([*words, str(self.dump), str(self.pass_num)])

    def shown(self) -> dict[str, Any]:
        """As Salt lists it."""
        return {
            "device": self.device,
            "fstype": self.fstype,
            "opts": self.opts.split(","),
            "dump": str(self.dump),
            "pass": str(self.pass_num),
        }


def parse(line: str) -> Mount | None:
    """A line; None for a comment and for what is none."""
    # libmount takes a carriage return before the line feed as a part of the line end, and only that one.
    words = system_text.fields(line.removesuffix("\r"))
    if len(words) < 3 or words[0].startswith("#"):
        return None
    numbers = [int(word) if word.isdecimal() else 0 for word in [*words[4:6], "0", "0"]]
    opts = words[3] if len(words) > 3 else "defaults"
    device, name, fstype, opts = map(system_text.unescaped, [*words[:3], opts])
    return Mount(device, name, fstype, opts, numbers[0], numbers[1])


def mounts(text: str) -> dict[str, dict[str, Any]]:
    """Place to what is mounted there, from /proc/self/mounts; of several the last one, which hides the others."""
    found: dict[str, dict[str, Any]] = {}
    for mount in mounted(text):
        found[mount.place] = {
            "device": mount.device,
            "alt_device": mount.device,
            "fstype": mount.kind,
            "opts": mount.options.split(","),
        }
    return found


def more(text: str) -> dict[str, dict[str, Any]]:
    """Place to all that the kernel knows of a mount, from /proc/self/mountinfo, proc(5)."""
    found: dict[str, dict[str, Any]] = {}
    for line in system_text.lines(text):
        own, parted, rest = line.partition(" - ")
        words, others = own.split(" "), rest.split(" ")
        if parted and len(words) >= 6 and len(others) >= 3:
            major, _, minor = words[2].partition(":")
            found[system_text.unescaped(words[4])] = {
                "mountid": words[0],
                "parentid": words[1],
                "major": major,
                "minor": minor,
                "root": system_text.unescaped(words[3]),
                "opts": words[5].split(","),
                "fstype": others[0],
                "device": system_text.unescaped(others[1]),
                "alt_device": system_text.unescaped(others[1]),
                "superopts": others[2].split(","),
                "device_uuid": None,
                "device_label": None,
            }
    return found


def swaps(text: str) -> dict[str, dict[str, str]]:
    """Device to what is swapped there, from /proc/swaps."""
    lines = [system_text.fields(line) for line in system_text.lines(text)[1:]]
    keys = ("type", "size", "used", "priority")
    return {
        system_text.unescaped(words[0]): dict(zip(keys, words[1:5], strict=True)) for words in lines if len(words) >= 5
    }


def _written(word: str) -> str:
    # Only characters of ASCII: an octal number is one byte of a name, and a blank outside ASCII separates nothing.
    return re.sub(r"[\s\\#]", lambda found: f"\\{ord(found[0]):03o}", word, flags=re.ASCII)
