"""The device's processes: which there are, which work most, and their end."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

from msgspec import Meta

from device_agent import system_text
from device_agent.commands import look
from device_agent.ended import FunctionFailed
from device_agent.expressions import Expression
from device_agent.host import Host
from device_agent.looks import processes_of
from device_agent.readings.processes import Process, attributes

Pid = Annotated[int, Meta(ge=1, le=2**31)]
Signal = Annotated[int, Meta(ge=0, le=64)]
Pattern = Annotated[str, Meta(min_length=1, max_length=1024)]

_MORE = """
cd "/proc/$1" || exit 1
echo "exe=$(readlink exe)"; echo "cwd=$(readlink cwd)"; echo "fds=$(ls fd 2>/dev/null | grep -c '')"
grep -e '^Uid:' -e '^Gid:' -e 'ctxt_switches:' status
"""


async def get_pid_list(host: Host) -> list[int]:
    """Return the numbers of all processes.

    CLI Example:

        outstation run '*' ps.get_pid_list
    """
    names = system_text.words((await look(host, "cd /proc && echo [0-9]*")).must().out)
    return sorted(int(name) for name in names if name.isdecimal())


async def top(
    host: Host,
    num_processes: Annotated[int, Meta(ge=1, le=1000)] = 5,
    interval: Annotated[float, Meta(ge=0, le=60)] = 3,
) -> list[dict[str, Any]]:
    """Return the processes that use most of the processors during a few seconds.

    CLI Example:

        outstation run '*' ps.top
        outstation run '*' ps.top 5 10
    """
    before = {process.pid: process.busy for process in (await processes_of(host)).processes}
    await asyncio.sleep(interval)
    after = (await processes_of(host)).processes
    still = [process for process in after if process.pid in before]
    still.sort(key=lambda process: process.busy - before[process.pid], reverse=True)
    return [
        {
            "cmd": list(process.command) or process.name,
            "user": process.user,
            "status": process.status,
            "pid": process.pid,
            "create_time": process.created,
            "cpu": process.shown_cpu(),
            "mem": process.shown_memory(),
        }
        for process in still[:num_processes]
    ]


async def proc_info(host: Host, pid: Pid, attrs: list[str] | None = None) -> dict[str, Any]:
    """Return what is known of one process, or some of it. Its environment is not shown: there are secrets in it.

    CLI Example:

        outstation run '*' ps.proc_info 2322
        outstation run '*' ps.proc_info 2322 attrs='["pid", "name"]'
    """
    seen = await processes_of(host, pid)
    process = next((each for each in seen.processes if each.pid == pid), None)
    if process is None:
        raise FunctionFailed(f"there is no process {pid}")
    found = attributes(process, seen.memory) | _more((await look(host, _MORE, str(pid))).out)
    if attrs is None:
        return found
    if unknown := [name for name in attrs if name not in found]:
        raise FunctionFailed(f"nothing is known as {', '.join(unknown)[:200]}; known: {', '.join(sorted(found))}")
    return {name: found[name] for name in attrs}


async def pgrep(
    host: Host,
    pattern: Pattern,
    user: str | None = None,
    full: bool = False,
    pattern_is_regex: bool = False,
) -> list[int] | None:
    """Return the numbers of the processes with this text in their name, or with ``full`` in their command line.

    CLI Example:

        outstation run '*' ps.pgrep httpd
        outstation run '*' ps.pgrep '^ht.*d$' pattern_is_regex=True
    """
    found = await _matching(host, pattern if pattern_is_regex else re.escape(pattern), full=full)
    return [each.pid for each in found if user in {None, each.user}] or None


async def pkill(
    host: Host,
    pattern: Pattern,
    user: str | None = None,
    signal: Signal = 15,
    full: bool = False,
) -> dict[str, list[int]] | None:
    """Send a signal to the processes whose name, or with ``full`` whose command line, has this regular expression.

    CLI Example:

        outstation run '*' ps.pkill httpd
        outstation run '*' ps.pkill 'recorder --old' full=True signal=9
    """
    found = await _matching(host, pattern, full=full)
    meant = [each.pid for each in found if user in {None, each.user} and each.pid != 1]
    killed = [pid for pid in meant if await _kill(host, pid, signal)]
    return {"killed": killed} if killed else None


async def kill_pid(host: Host, pid: Pid, signal: Signal = 15) -> bool:
    """Send a signal to one process and return whether it was there to take it.

    CLI Example:

        outstation run 'cam-1' ps.kill_pid 2000
        outstation run 'cam-1' ps.kill_pid 2000 signal=9
    """
    if pid == 1:
        # Its signals restart the device, switch it off, or open a shell of root on the console.
        raise FunctionFailed("process 1 is sent no signal; system.reboot, system.poweroff and system.init are there")
    return await _kill(host, pid, signal)


async def _kill(host: Host, pid: int, signal: int) -> bool:
    return (await look(host, 'kill "-$1" "$2"', str(signal), str(pid))).ok


async def _matching(host: Host, pattern: str, *, full: bool) -> list[Process]:
    wanted = Expression(pattern)
    there = (await processes_of(host)).processes
    hits = await wanted.search([" ".join(each.command) if full else each.name for each in there])
    return [each for each, hit in zip(there, hits, strict=True) if hit]


def _more(text: str) -> dict[str, Any]:
    """What only the files of one process say; of another user's process some of it stays empty."""
    lines = dict(re.split(r"[=:]\s*", line, maxsplit=1) for line in system_text.lines(text) if re.search(r"[=:]", line))
    switches = [lines.get(f"{kind}_ctxt_switches", "0") for kind in ("voluntary", "nonvoluntary")]
    return {
        "exe": lines.get("exe") or None,
        "cwd": lines.get("cwd") or None,
        "num_fds": int(lines.get("fds", "0") or 0),
        "uids": [int(word) for word in system_text.words(lines.get("Uid", ""))[:3]],
        "gids": [int(word) for word in system_text.words(lines.get("Gid", ""))[:3]],
        "num_ctx_switches": [int(count) for count in switches],
    }
