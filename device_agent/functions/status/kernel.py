"""Counters and figures of the kernel."""

from __future__ import annotations

from typing import Any

from device_agent import text_files
from device_agent.commands import look
from device_agent.host import Host
from device_agent.readings import counts


async def loadavg(host: Host) -> dict[str, float]:
    """Return how many processes ran or waited to run, over the last 1, 5 and 15 minutes.

    CLI Example:

        outstation run '*' status.loadavg
    """
    return counts.loadavg(await text_files.look(host, "/proc/loadavg"))


async def cpustats(host: Host) -> dict[str, Any]:
    """Return what the processors have done since the start, in ticks, and how many interrupts there were.

    CLI Example:

        outstation run '*' status.cpustats
    """
    return counts.cpustats(await text_files.look(host, "/proc/stat"))


async def meminfo(host: Host) -> dict[str, dict[str, str]]:
    """Return what the kernel says of the memory, each with its unit.

    CLI Example:

        outstation run '*' status.meminfo
    """
    return counts.meminfo(await text_files.look(host, "/proc/meminfo"))


async def cpuinfo(host: Host) -> dict[str, Any]:
    """Return what the last processor says of itself.

    CLI Example:

        outstation run '*' status.cpuinfo
    """
    return counts.cpuinfo(await text_files.look(host, "/proc/cpuinfo"))


async def vmstats(host: Host) -> dict[str, Any]:
    """Return the counters of virtual memory.

    CLI Example:

        outstation run '*' status.vmstats
    """
    return counts.vmstats(await text_files.look(host, "/proc/vmstat"))


async def diskstats(host: Host) -> dict[str, dict[str, Any]]:
    """Return what was read and written on each block device.

    CLI Example:

        outstation run '*' status.diskstats
    """
    return counts.diskstats(await text_files.look(host, "/proc/diskstats", must=False))


async def netstats(host: Host) -> dict[str, dict[str, Any]]:
    """Return the network counters of the kernel.

    CLI Example:

        outstation run '*' status.netstats
    """
    return counts.netstats(await text_files.look(host, "/proc/net/netstat"))


async def netdev(host: Host) -> dict[str, dict[str, Any]]:
    """Return what each interface has received and sent.

    CLI Example:

        outstation run '*' status.netdev
    """
    return counts.netdev(await text_files.look(host, "/proc/net/dev"))


async def nproc(host: Host) -> int:
    """Return how many processors can be used.

    CLI Example:

        outstation run '*' status.nproc
    """
    answer = (await look(host, "nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo")).out
    return int(answer) if answer.strip().isdecimal() else 0


async def version(host: Host) -> str:
    """Return the version of the kernel as it says it itself.

    CLI Example:

        outstation run '*' status.version
    """
    return (await text_files.look(host, "/proc/version")).strip()
