"""The device as a whole: since when it runs, who and what is on it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any

from msgspec import Meta

from device_agent import system_text
from device_agent.clock import iso
from device_agent.commands import look
from device_agent.ended import FunctionFailed
from device_agent.functions.status import kernel
from device_agent.host import Host
from device_agent.looks import logins_of, mounts_of, processes_of
from device_agent.readings.mounts import KIB

DAY = 86_400
HOUR = 3600
TIME_FORMAT = "%A, %d. %B %Y %I:%M%p"
Format = Annotated[str, Meta(min_length=1, max_length=256)]


async def uptime(host: Host) -> dict[str, Any]:
    """Return how long the device has been running, since when, and how many users are logged in.

    CLI Example:

        outstation run '*' status.uptime
    """
    answer = system_text.words((await look(host, "cat /proc/uptime; date +%s")).must().out)
    try:
        seconds, now = int(float(answer[0])), int(answer[-1])
    except (ValueError, IndexError) as error:
        raise FunctionFailed("the device does not say how long it has been running") from error
    since = now - seconds
    return {
        "seconds": seconds,
        "since_iso": iso(since).rstrip("Z"),
        "since_t": since,
        "days": seconds // DAY,
        "time": f"{seconds % DAY // HOUR}:{seconds % HOUR // 60:02d}",
        "users": len(await logins_of(host)),
    }


async def time(host: Host, format: Format = TIME_FORMAT) -> str:  # noqa: A002 - Salt's name for it
    """Return what time it is on the device, written as date(1) is told to.

    CLI Example:

        outstation run '*' status.time
        outstation run '*' status.time '%s'
    """
    return (await look(host, 'exec date "+$1"', format)).must().out.rstrip("\n")


async def diskusage(host: Host, *args: str) -> dict[str, dict[str, int]]:
    """Return how many bytes each mounted file system has and has left; chosen by kind or by a glob of the place.

    CLI Example:

        outstation run '*' status.diskusage
        outstation run '*' status.diskusage ext4 '/mnt/*'
    """
    mounts, filled, _ = await mounts_of(host)
    found = {}
    for mount in mounts:
        if args and mount.kind not in args and not any(fnmatchcase(mount.place, glob) for glob in args):
            continue
        row = filled.get(mount.place)
        known = row is not None and row.whole.isdecimal() and row.free.isdecimal()
        found[mount.place] = {
            "available": int(row.free) * KIB if row is not None and known else 0,
            "total": int(row.whole) * KIB if row is not None and known else 0,
        }
    return found


async def procs(host: Host) -> dict[str, dict[str, str]]:
    """Return all processes by number, with user and command line.

    CLI Example:

        outstation run '*' status.procs
    """
    found = (await processes_of(host)).processes
    return {str(process.pid): {"user": process.user, "cmd": process.line} for process in found}


async def pid(host: Host, sig: Annotated[str, Meta(min_length=1)]) -> str:
    """Return the numbers of the processes whose command line has this text in it, one in each line.

    CLI Example:

        outstation run '*' status.pid sshd
    """
    found = (await processes_of(host)).processes
    return "\n".join(str(process.pid) for process in found if sig in process.line)


async def w(host: Host) -> list[dict[str, str]]:
    """Return who is logged in; what each does where the device has the command ``w``.

    CLI Example:

        outstation run '*' status.w
    """
    answer = (await look(host, "if command -v w >/dev/null 2>&1; then w -fh 2>/dev/null || w -h 2>/dev/null; fi")).out
    rows = [words for line in system_text.lines(answer) if len(words := system_text.words(line, 6)) == 7]
    names = ("user", "tty", "login", "idle", "jcpu", "pcpu", "what")
    if rows:
        return [dict(zip(names, words, strict=True)) for words in rows]
    return [
        {"idle": "", "jcpu": "", "login": iso(each.started)[11:16], "pcpu": "", "tty": each.terminal}
        | {"user": each.name, "what": ""}
        for each in await logins_of(host)
    ]


async def all_status(host: Host) -> dict[str, Any]:
    """Return what the other functions of this module return, by their names.

    CLI Example:

        outstation run 'cam-1' status.all_status
    """
    asked_for = (
        kernel.cpuinfo,
        kernel.cpustats,
        kernel.diskstats,
        diskusage,
        kernel.loadavg,
        kernel.meminfo,
        kernel.netdev,
        kernel.netstats,
        uptime,
        kernel.vmstats,
        w,
    )
    # One after another: over SSH each takes a session of its own, and a device has few.
    return {each.__name__: await each(host) for each in asked_for}
