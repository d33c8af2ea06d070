"""Processes from /proc/PID/stat, statm and cmdline, proc(5), all of them in one answer."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from device_agent import system_text
from device_agent.readings.process_name import whole_name

TICKS = 100
"""Ticks in a second in all that Linux tells: the same on every machine it runs on today."""

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk-sleep",
    "T": "stopped",
    "t": "tracing-stop",
    "Z": "zombie",
    "X": "dead",
    "x": "dead",
    "K": "wake-kill",
    "W": "waking",
    "I": "idle",
    "P": "parked",
}
COMMAND_BYTES = 4096
"""Of a longer command line only the beginning is kept."""

# The boundary is the content of a file that is the same whenever it is read; cat puts it between the files of two
# processes, so that all of them are one command and not one for each.
# The processes that look are left out: their command line has whatever they look for. Arguments are the numbers of the
# processes that are meant; without any, all are.
_MARK = "b=sys/kernel/random/boot_id"
SCRIPT = f"""
cd /proc || exit 1
[ $# -gt 0 ] || set -- [0-9]*
{_MARK}
cat "$b"; echo "self $$"
grep '^btime ' stat; grep '^MemTotal:' meminfo; grep -m 1 '^KernelPageSize:' self/smaps; echo '%%'
ls -ld "$@" 2>/dev/null; echo '%%'
a=; for p do a="$a $b $p/stat $p/statm $p/cmdline"; done
cat $a 2>/dev/null
"""

_BEHIND_THE_NAME = re.compile(r"\) (\S) ([-\d ]+)")


class Process(Struct, frozen=True):
    """One process. Times are seconds, sizes bytes."""

    pid: int
    name: str
    command: tuple[str, ...]
    state: str
    parent: int
    user: str
    nice: int
    threads: int
    created: float
    cpu: tuple[float, float, float, float, float]
    """User, system, the same of children that have ended, and waiting for disks."""

    memory: tuple[int, ...]
    """Resident, virtual, shared, text, libraries, data, dirty."""

    processor: int
    terminal: int

    @property
    def status(self) -> str:
        """The state in one word."""
        return STATES.get(self.state, "unknown")

    @property
    def line(self) -> str:
        """The command line; of a kernel's thread its name in brackets."""
        return " ".join(self.command) or f"[{self.name}]"

    @property
    def busy(self) -> float:
        """Seconds of processor time, its own."""
        return self.cpu[0] + self.cpu[1]

    def shown_cpu(self) -> dict[str, float]:
        """Times by name."""
        names = ("user", "system", "children_user", "children_system", "iowait")
        return dict(zip(names, self.cpu, strict=True))

    def shown_memory(self) -> dict[str, int]:
        """Sizes by name."""
        return dict(zip(("rss", "vms", "shared", "text", "lib", "data", "dirty"), self.memory, strict=True))


class Reading(Struct, frozen=True):
    """All processes at one moment, and how much memory the machine has."""

    processes: list[Process]
    memory: int


def reading(text: str) -> Reading:
    """The processes in the answer to ``SCRIPT``."""
    boundary, _, rest = text.partition("\n")
    head, _, rest = rest.partition("%%\n")
    listing, _, body = rest.partition("%%\n")
    figures = {
        words[0].rstrip(":"): int(words[1])
        for line in system_text.lines(head)
        if len(words := system_text.words(line)) >= 2
    }
    owners = {words[-1]: words[2] for line in system_text.lines(listing) if len(words := system_text.words(line)) >= 8}
    page = figures.get("KernelPageSize", 4) * 1024
    looking = figures.get("self", 0)
    found = []
    for part in body.split(f"{boundary}\n") if boundary else []:
        process = _process(part, owners, figures.get("btime", 0), page)
        if process is None or looking in {process.pid, process.parent} or _MARK in " ".join(process.command):
            continue
        found.append(process)
    return Reading(sorted(found, key=lambda each: each.pid), figures.get("MemTotal", 0) * 1024)


class _Stat(Struct, frozen=True):
    pid: str
    name: str
    state: str
    fields: list[int]
    behind: str


def _stat(part: str) -> _Stat | None:
    """The file ``stat`` and what follows it. The name of a program may have anything in it, line ends and brackets too.

    Its file ends with the first line that has a bracket with nothing but a letter and numbers behind: each line is
    looked at once, from its last bracket on.
    """
    pid, _, rest = part.partition(" (")
    start = 0
    while pid.isdecimal() and start < len(rest):
        end = rest.find("\n", start)
        end = len(rest) if end < 0 else end
        bracket = rest.rfind(")", start, end)
        found = _BEHIND_THE_NAME.fullmatch(rest, bracket, end) if bracket >= 0 else None
        if found is not None:
            return _Stat(
                pid, rest[:bracket], found[1], [int(word) for word in system_text.words(found[2])], rest[end + 1 :]
            )
        start = end + 1
    return None


def _process(part: str, owners: dict[str, str], booted: int, page: int) -> Process | None:
    found = _stat(part)
    if found is None or len(found.fields) < 36:
        return None
    fields = found.fields
    sizes, _, command = found.behind.partition("\n")
    statm = ([int(word) for word in system_text.words(sizes) if word.isdecimal()] + [0] * 7)[:7]
    whole, resident, shared, text, libraries, data, dirty = (size * page for size in statm)
    ticks = [*fields[10:14], fields[38] if len(fields) > 38 else 0]
    user, system, children_user, children_system, waiting = (round(tick / TICKS, 2) for tick in ticks)
    words = command[:COMMAND_BYTES].rstrip("\0").split("\0") if command.strip("\0") else []
    return Process(
        pid=int(found.pid),
        name=whole_name(found.name, words),
        command=tuple(words),
        state=found.state,
        parent=fields[0],
        user=owners.get(found.pid, ""),
        nice=fields[15],
        threads=fields[16],
        created=round(booted + fields[18] / TICKS, 2),
        cpu=(user, system, children_user, children_system, waiting),
        memory=(resident, whole, shared, text, libraries, data, dirty),
        processor=fields[35],
        terminal=fields[3],
    )


def attributes(process: Process, memory: int) -> dict[str, Any]:
    """What ``ps.proc_info`` shows of a process from these files."""
    return {
        "pid": process.pid,
        "ppid": process.parent,
        "name": process.name,
        "cmdline": list(process.command),
        "status": process.status,
        "username": process.user,
        "nice": process.nice,
        "num_threads": process.threads,
        "create_time": process.created,
        "cpu_times": list(process.cpu),
        "cpu_num": process.processor,
        "memory_info": list(process.memory),
        "memory_percent": round(100.0 * process.memory[0] / memory, 4) if memory else 0.0,
    }
