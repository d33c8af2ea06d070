"""What several functions ask a host for: its processes, its logins, its file systems."""

from __future__ import annotations

from device_agent import system_text
from device_agent.commands import look
from device_agent.host import Host
from device_agent.readings import mounts as mount_reading
from device_agent.readings.logins import PLACES, Login, logins
from device_agent.readings.mounts import Filled, Mount
from device_agent.readings.processes import SCRIPT, Reading, reading

LOGIN_BYTES = 384 * 400


async def processes_of(host: Host, *pids: int) -> Reading:
    """All processes of a host, or those of these numbers that there are."""
    return reading((await look(host, SCRIPT, *map(str, pids))).out)


async def logins_of(host: Host) -> list[Login]:
    """Who is logged in on a host."""
    for place in PLACES:
        try:
            return logins(await host.read(place, limit=LOGIN_BYTES))
        except OSError:
            continue
    return []


async def mounts_of(host: Host) -> tuple[list[Mount], dict[str, Filled], set[str]]:
    """What is mounted, how full each is by its place, and which kinds need no block device."""
    script = "cat /proc/mounts; echo '%%'; cat /proc/filesystems; echo '%%'; df -Pk 2>/dev/null"
    answer = (await look(host, script)).out
    table, _, rest = answer.partition("%%\n")
    kinds, _, full = rest.partition("%%\n")
    without = {
        words[1]
        for line in system_text.lines(kinds)
        if len(words := system_text.words(line)) == 2 and words[0] == "nodev"
    }
    return mount_reading.mounts(table), {row.place: row for row in mount_reading.filled(full)}, without
