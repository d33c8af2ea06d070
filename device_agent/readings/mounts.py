"""What is mounted, and how full it is: /proc/mounts, and ``df -P`` of coreutils or of BusyBox."""

from __future__ import annotations

import re

from msgspec import Struct

from device_agent import system_text

KIB = 1024
_COUNT = re.compile(r"-?\d+|-")
_PERCENT = re.compile(r"\d+%|-")


class Mount(Struct, frozen=True):
    """One line of /proc/mounts."""

    device: str
    place: str
    kind: str
    options: str


class Filled(Struct, frozen=True):
    """One line of ``df -P``: blocks of 1 KiB, or inodes. Numbers are as they were written."""

    device: str
    whole: str
    used: str
    free: str
    percent: str
    place: str


def mounts(text: str) -> list[Mount]:
    """The lines of /proc/mounts, whose names have a space, tab, line feed and backslash as octal numbers.

    One space separates the fields, of which the device may be empty. Every other character stands for itself.
    """
    rows = (line.split(" ") for line in system_text.lines(text))
    return [Mount(*map(system_text.unescaped, row[:4])) for row in rows if len(row) >= 4]


def filled(text: str) -> list[Filled]:
    """The lines of ``df -P``, without its heading."""
    return [row for line in system_text.lines(text)[1:] if (row := _row(line)) is not None]


def _row(line: str) -> Filled | None:
    """Three counts, a percentage and a place that begins at the root, the first such, behind any words at all."""
    words = system_text.words(line)
    for at in range(1, len(words) - 4):
        if not (words[at + 4][0] == "/" and _PERCENT.fullmatch(words[at + 3])):
            continue
        whole, used, free, percent = words[at : at + 4]
        if all(map(_COUNT.fullmatch, (whole, used, free))):
            place = system_text.words(line, at + 4)[-1]
            device = line.removesuffix(place).rsplit(None, 4)[0]
            return Filled(device, whole, used, free, percent, place)
    return None
