"""Counters and figures of the kernel, from the files of proc(5)."""

from __future__ import annotations

import re
from typing import Any

from device_agent import system_text

CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
STATUS_CPU_FIELDS = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
DISK_FIELDS = (
    "reads_issued",
    "reads_merged",
    "sectors_read",
    "ms_spent_reading",
    "writes_completed",
    "writes_merged",
    "sectors_written",
    "ms_spent_writing",
    "io_in_progress",
    "ms_spent_in_io",
    "weighted_ms_spent_in_io",
)
NET_FIELDS = (
    "rx_bytes",
    "rx_packets",
    "rx_errs",
    "rx_drop",
    "rx_fifo",
    "rx_frame",
    "rx_compressed",
    "rx_multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errs",
    "tx_drop",
    "tx_fifo",
    "tx_colls",
    "tx_carrier",
    "tx_compressed",
)
LISTED = ("flags", "Features", "bugs")
"""Lines of /proc/cpuinfo that are lists of words."""

KIB = 1024


def number(text: str) -> int | float | str:
    """A number if it is one."""
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def meminfo(text: str) -> dict[str, dict[str, str]]:
    """/proc/meminfo as ``status.meminfo`` shows it; a line of several values is no line of today's kernels."""
    found = {}
    for line in system_text.lines(text):
        name, _, rest = line.partition(":")
        words = system_text.words(rest)
        if name and words and words[0].isdecimal():
            found[name.strip()] = {"value": words[0]} | ({"unit": words[1]} if len(words) > 1 else {})
    return found


def cpuinfo(text: str) -> dict[str, Any]:
    """/proc/cpuinfo as ``status.cpuinfo`` shows it: of what each processor says, the last one's word."""
    found: dict[str, Any] = {}
    for line in system_text.lines(text):
        name, mark, value = line.partition(":")
        if mark and name.strip():
            found[name.strip()] = system_text.words(value) if name.strip() in LISTED[:2] else value.strip()
    return found


def cpustats(text: str) -> dict[str, Any]:
    """/proc/stat as ``status.cpustats`` shows it."""
    found: dict[str, Any] = {}
    for line in system_text.lines(text):
        name, *values = system_text.words(line) or [""]
        if name == "cpu":
            named = dict(zip(CPU_FIELDS, map(number, values), strict=False))
            found["cpu"] = {field: named[field] for field in STATUS_CPU_FIELDS if field in named}
        elif name == "intr" and values:
            found["intr"] = {"total": number(values[0]), "irqs": [number(value) for value in values[1:]]}
        elif name == "softirq" and values:
            found["softirq"] = {"total": number(values[0]), "softirqs": [number(value) for value in values[1:]]}
        elif values:
            found[name] = number(values[0])
    return found


def cpu_ticks(text: str) -> dict[str, dict[str, int]]:
    """Ticks of each processor and, as ``cpu``, of all together, from /proc/stat."""
    found = {}
    for line in system_text.lines(text):
        name, *values = system_text.words(line) or [""]
        if name.startswith("cpu"):
            found[name] = dict(zip(CPU_FIELDS, (int(value) for value in values), strict=False))
    return found


def busy_percent(before: dict[str, int], after: dict[str, int]) -> float:
    """How busy a processor was between two readings; waiting for a disk is not being busy."""
    # Time of guests is in the time of users as well.
    fields = CPU_FIELDS[:8]
    spent = {field: max(0, after.get(field, 0) - before.get(field, 0)) for field in fields}
    whole = sum(spent.values())
    return round(100.0 * (whole - spent["idle"] - spent["iowait"]) / whole, 1) if whole else 0.0


def vmstats(text: str) -> dict[str, Any]:
    """Lines of a name and a number, /proc/vmstat."""
    return {
        words[0]: number(words[1]) for line in system_text.lines(text) if len(words := system_text.words(line)) >= 2
    }


def loadavg(text: str) -> dict[str, float]:
    """/proc/loadavg as ``status.loadavg`` shows it."""
    words = [*system_text.words(text), "0", "0", "0"]
    return {"1-min": float(words[0]), "5-min": float(words[1]), "15-min": float(words[2])}


def diskstats(text: str) -> dict[str, dict[str, Any]]:
    """/proc/diskstats as ``status.diskstats`` shows it."""
    found = {}
    for line in system_text.lines(text):
        words = system_text.words(line)
        if len(words) >= 3 + len(DISK_FIELDS):
            major, minor, device, *values = words
            counted = dict(zip(DISK_FIELDS, map(number, values), strict=False))
            found[device] = {"major": number(major), "minor": number(minor), "device": device} | counted
    return found


def netdev(text: str) -> dict[str, dict[str, Any]]:
    """/proc/net/dev as ``status.netdev`` shows it."""
    found: dict[str, dict[str, Any]] = {}
    for line in system_text.lines(text)[2:]:
        name, mark, rest = line.rpartition(":")
        values = system_text.words(rest)
        if mark and len(values) >= len(NET_FIELDS):
            counted = dict(zip(NET_FIELDS, (int(value) for value in values), strict=False))
            found[name.strip(system_text.SPACE)] = {"iface": name.strip(system_text.SPACE)} | counted
    return found


def netstats(text: str) -> dict[str, dict[str, Any]]:
    """/proc/net/netstat as ``status.netstats`` shows it: a line of names and a line of numbers by turns."""
    found: dict[str, dict[str, Any]] = {}
    lines = system_text.lines(text)
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        title, *fields = system_text.words(names)
        _, *counted = system_text.words(values)
        found[title.rstrip(":")] = dict(zip(fields, map(number, counted), strict=False))
    return found


def virtual_memory(text: str) -> dict[str, int | float]:
    """Memory in bytes as ``ps.virtual_memory`` shows it, from /proc/meminfo."""
    known = {name: int(entry["value"]) * KIB for name, entry in meminfo(text).items()}
    total, free = known.get("MemTotal", 0), known.get("MemFree", 0)
    cached = known.get("Cached", 0) + known.get("SReclaimable", 0)
    buffers = known.get("Buffers", 0)
    # Linux before 3.14 does not say what is available.
    available = min(known.get("MemAvailable", free + buffers + cached), total)
    return {
        "total": total,
        "available": available,
        "percent": _percent(total - available, total),
        "used": total - available,
        "free": free,
        "active": known.get("Active", 0),
        "inactive": known.get("Inactive", 0),
        "buffers": buffers,
        "cached": cached,
        "shared": known.get("Shmem", 0),
        "slab": known.get("Slab", 0),
    }


def swap_memory(text: str, paging: str) -> dict[str, int | float]:
    """Swap in bytes as ``ps.swap_memory`` shows it, from /proc/meminfo and /proc/vmstat."""
    known = {name: int(entry["value"]) * KIB for name, entry in meminfo(text).items()}
    total, free = known.get("SwapTotal", 0), known.get("SwapFree", 0)
    moved = dict(re.findall(r"^(pswpin|pswpout) (\d+)$", paging, re.MULTILINE))
    page = 4 * KIB
    return {
        "total": total,
        "used": total - free,
        "free": free,
        "percent": _percent(total - free, total),
        "sin": int(moved.get("pswpin", 0)) * page,
        "sout": int(moved.get("pswpout", 0)) * page,
    }


def _percent(part: int, whole: int) -> float:
    return round(100.0 * part / whole, 1) if whole else 0.0
