"""Are the ports of the settings this station's, and not another program's?"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from device_agent import system_text
from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding
from gateway.checks.own_processes import is_own, runs

LISTEN: Final = "0A"
"""The state of a listening socket in /proc/net/tcp (proc(5))."""

TABLES: Final = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
PROCESSES: Final = Path("/proc")
PROCESSES_LOOKED_AT: Final = 20_000


async def check(facts: Facts) -> list[Finding]:
    """A finding for each port at which nobody listens although the station runs."""
    wanted = facts.box().tcp_ports
    listening = {port for port, _ in await asyncio.to_thread(_listening)}
    if not listening:
        # /proc is hidden from this process: the other checks say what does not answer.
        return []
    silent = [
        Finding(
            check="ports",
            severity="error",
            finding=f"nobody listens at port {port} ({setting})",
            meaning="whoever is meant to connect there is turned away",
            fix=f"systemctl restart {facts.box().unit}; if it stays: journalctl -u {facts.box().unit} -n 50",
            about=setting,
        )
        for setting, _, port in wanted
        if port not in listening
    ]
    return silent or _fine(wanted, "listening at")


def at_rest(box: Box) -> list[Finding]:
    """A finding for each port that a station could not have now."""
    taken = []
    running = runs(box)
    for setting, host, port in box.tcp_ports:
        error = _bind(host, port)
        if error is None:
            continue
        meaning = f"the {box.role} cannot start until it is free"
        if error.errno == errno.EADDRINUSE:
            holder = _holder(port)
            if holder is not None and running and is_own(holder, box):
                # The station runs, and does not answer: the check of it says so.
                continue
            finding = f"port {port} ({setting}) is taken by {words_of(holder)}"
            fix = f"ss -ltnp 'sport = :{port}' shows who it is: stop it, or set {setting} in the settings"
        elif error.errno == errno.EACCES:
            finding = f"port {port} ({setting}) is below 1024 and needs a privilege that the station has not"
            fix = f"set {setting} in the settings to a port above 1023"
        else:
            if setting.startswith("broker."):
                # The check of the broker says it once for all its ports.
                continue
            finding = f"port {port} ({setting}) cannot be opened on {host}: {error.strerror or error}"
            fix = f"ip -brief address shows the addresses of this machine; correct {setting} in the settings"
            meaning = f"the {box.role} starts again and again until this machine has that address"
        taken.append(Finding(check="ports", severity="error", finding=finding, meaning=meaning, fix=fix, about=setting))
    return taken or _fine(box.tcp_ports, "free for it:")


def _fine(wanted: Iterable[tuple[str, str, int]], words: str) -> list[Finding]:
    named = ", ".join(f"{port} ({setting})" for setting, _, port in wanted)
    return [Finding(check="ports", severity="ok", finding=f"{words} {named}")] if named else []


def _bind(host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the station does: connections of before that are not quite over are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("" if host == "*" else host, port))
            probe.listen(1)
    except OSError as error:
        return error
    return None


def _listening() -> list[tuple[int, str]]:
    """Every port where somebody listens on this machine, with the socket's inode."""
    found = []
    for table in TABLES:
        try:
            lines = system_text.lines(Path(table).read_text(encoding="ascii"))[1:]
        except (FileNotFoundError, PermissionError):
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTEN:
                found.append((int(fields[1].rpartition(":")[2], 16), fields[9]))
    return found


def words_of(process: Path | None) -> str:
    """A program by its name."""
    try:
        name = (process / "comm").read_bytes().decode(errors="replace").strip() if process else ""
    except OSError:
        name = ""
    return f"{name} (process {process.name})" if process and name else "another program"


def _holder(port: int) -> Path | None:
    """The process that listens there, in /proc; None where this user may not know it."""
    inodes = {f"socket:[{inode}]" for found, inode in _listening() if found == port}
    for process in sorted(PROCESSES.glob("[0-9]*"))[:PROCESSES_LOOKED_AT]:
        try:
            if any(str(entry.readlink()) in inodes for entry in (process / "fd").iterdir()):
                return process
        except OSError:
            # Another's, or it has ended meanwhile.
            continue
    return None
