"""What the whole machine spends: processors, memory, disks and network."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from device_agent import system_text, text_files
from device_agent.commands import look
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.looks import logins_of, mounts_of
from device_agent.readings import counts
from device_agent.readings.mounts import KIB, Filled, filled
from device_agent.readings.processes import TICKS

SECTOR = 512
Seconds = Annotated[float, Meta(gt=0, le=60)]
Place = Annotated[str, Meta(min_length=1, pattern=r"^/")]


async def num_cpus(host: Host) -> int:
    """Return how many processors there are.

    CLI Example:

        outstation run '*' ps.num_cpus
    """
    return len(_each(counts.cpu_ticks(await text_files.look(host, "/proc/stat"))))


async def cpu_percent(
    host: Host,
    interval: Seconds = 0.1,
    per_cpu: bool = False,
) -> float | list[float]:
    """Return how busy the processors are during a moment, in percent; all together or each.

    CLI Example:

        outstation run '*' ps.cpu_percent
        outstation run '*' ps.cpu_percent 1 per_cpu=True
    """
    before = counts.cpu_ticks(await text_files.look(host, "/proc/stat"))
    await asyncio.sleep(interval)
    after = counts.cpu_ticks(await text_files.look(host, "/proc/stat"))
    if per_cpu:
        return [counts.busy_percent(before.get(name, {}), after[name]) for name in _each(after)]
    return counts.busy_percent(before.get("cpu", {}), after.get("cpu", {}))


async def cpu_times(
    host: Host,
    per_cpu: bool = False,
) -> dict[str, float] | list[dict[str, float]]:
    """Return what the processors have done since the start, in seconds; all together or each.

    CLI Example:

        outstation run '*' ps.cpu_times
    """
    found = {
        name: {field: tick / TICKS for field, tick in ticks.items()}
        for name, ticks in counts.cpu_ticks(await text_files.look(host, "/proc/stat")).items()
    }
    return [found[name] for name in _each(found)] if per_cpu else found.get("cpu", {})


async def virtual_memory(host: Host) -> dict[str, int | float]:
    """Return how the memory is used, in bytes.

    CLI Example:

        outstation run '*' ps.virtual_memory
    """
    return counts.virtual_memory(await text_files.look(host, "/proc/meminfo"))


async def swap_memory(host: Host) -> dict[str, int | float]:
    """Return how the swap is used, in bytes.

    CLI Example:

        outstation run '*' ps.swap_memory
    """
    return counts.swap_memory(
        await text_files.look(host, "/proc/meminfo"), await text_files.look(host, "/proc/vmstat", must=False)
    )


async def total_physical_memory(host: Host) -> int:
    """Return how much memory there is, in bytes.

    CLI Example:

        outstation run '*' ps.total_physical_memory
    """
    return int(counts.virtual_memory(await text_files.look(host, "/proc/meminfo"))["total"])


async def boot_time(host: Host, time_format: str | None = None) -> int | str:
    """Return when the device was started, in seconds since 1970 or written as date(1) is told to.

    CLI Example:

        outstation run '*' ps.boot_time
        outstation run '*' ps.boot_time '%Y-%m-%d %H:%M'
    """
    stat = counts.cpustats(await text_files.look(host, "/proc/stat"))
    seconds = stat.get("btime")
    if not isinstance(seconds, int):
        raise FunctionFailed("the device does not say when it was started")
    if not time_format:
        return seconds
    return (await look(host, 'exec date -d "@$1" "+$2"', str(seconds), time_format)).must().out.rstrip("\n")


async def disk_usage(host: Host, path: Place) -> dict[str, int | float]:
    """Return how full the file system of one path is, in bytes.

    CLI Example:

        outstation run '*' ps.disk_usage /home
    """
    rows = filled((await look(host, 'exec df -Pk "$1"', path)).must().out)
    if not rows:
        raise FunctionFailed(f"df says nothing of {path}")
    return _usage(rows[0])


async def disk_partitions(
    host: Host,
    all: bool = False,  # noqa: A002 - Salt's name and place for it
) -> list[dict[str, str]]:
    """Return what is mounted from block devices, or all that is mounted.

    CLI Example:

        outstation run '*' ps.disk_partitions
        outstation run '*' ps.disk_partitions all=True
    """
    mounts, _, without = await mounts_of(host)
    return [
        {"device": mount.device, "mountpoint": mount.place, "fstype": mount.kind, "opts": mount.options}
        for mount in mounts
        if all or mount.kind not in without
    ]


async def disk_partition_usage(
    host: Host,
    all: bool = False,  # noqa: A002 - Salt's name and place for it
) -> list[dict[str, Any]]:
    """Return what is mounted from block devices, or all that is mounted, and how full each is.

    CLI Example:

        outstation run '*' ps.disk_partition_usage
    """
    _, rows, _ = await mounts_of(host)
    none = Filled("", "0", "0", "0", "-", "")
    return [mount | _usage(rows.get(mount["mountpoint"], none)) for mount in await disk_partitions(host, all)]


async def network_io_counters(host: Host, interface: str | None = None) -> dict[str, int] | bool:
    """Return what was received and sent, over one interface or over all; False when there is no such interface.

    CLI Example:

        outstation run '*' ps.network_io_counters
        outstation run '*' ps.network_io_counters interface=eth0
    """
    found = counts.netdev(await text_files.look(host, "/proc/net/dev"))
    kept = [each for name, each in found.items() if interface in {None, name}]
    if interface is not None and not kept:
        return False
    names = {
        "bytes_sent": "tx_bytes",
        "bytes_recv": "rx_bytes",
        "packets_sent": "tx_packets",
        "packets_recv": "rx_packets",
        "errin": "rx_errs",
        "errout": "tx_errs",
        "dropin": "rx_drop",
        "dropout": "tx_drop",
    }
    return {name: sum(each[field] for each in kept) for name, field in names.items()}


async def disk_io_counters(host: Host, device: str | None = None) -> dict[str, int] | bool:
    """Return what was read and written, on one block device or on all disks; False when there is no such device.

    CLI Example:

        outstation run '*' ps.disk_io_counters
        outstation run '*' ps.disk_io_counters device=sda1
    """
    answer = (await look(host, "cat /proc/diskstats; echo '%%'; ls /sys/block")).out
    table, _, disks = answer.partition("%%\n")
    found = counts.diskstats(table)
    names = set(system_text.words(disks)) if device is None else {device}
    kept = [each for name, each in found.items() if name in names]
    if device is not None and not kept:
        return False
    fields = {
        "read_count": ("reads_issued", 1),
        "write_count": ("writes_completed", 1),
        "read_bytes": ("sectors_read", SECTOR),
        "write_bytes": ("sectors_written", SECTOR),
        "read_time": ("ms_spent_reading", 1),
        "write_time": ("ms_spent_writing", 1),
        "read_merged_count": ("reads_merged", 1),
        "write_merged_count": ("writes_merged", 1),
        "busy_time": ("ms_spent_in_io", 1),
    }
    return {name: sum(each[field] for each in kept) * unit for name, (field, unit) in fields.items()}


async def get_users(host: Host) -> list[dict[str, Any]]:
    """Return who is logged in, from where and since when.

    CLI Example:

        outstation run '*' ps.get_users
    """
    return [login.shown() for login in await logins_of(host)]


def _each(found: dict[str, Any]) -> list[str]:
    return [name for name in found if name != "cpu"]


def _usage(row: Filled) -> dict[str, int | float]:
    whole, used, free = (int(word) * KIB if word.isdecimal() else 0 for word in (row.whole, row.used, row.free))
    return {
        "total": whole,
        "used": used,
        "free": free,
        "percent": round(100.0 * used / (used + free), 1) if used + free else 0.0,
    }
