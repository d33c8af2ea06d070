"""Is the machine's clock right, as far as that can be known here, and does anything set it?"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from device_agent import RELEASED
from device_agent.clock import iso
from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding
from gateway.fleet.station_files import StationFiles

BEHIND_SECONDS: Final = 60.0
TIMESYNC: Final = Path("/run/systemd/timesync")
SYNCHRONIZED: Final = TIMESYNC / "synchronized"
"""systemd-timesyncd(8): made at the first answer from a server."""

OTHERS: Final = ("/run/chrony/chronyd.pid", "/run/ntpd.pid", "/run/openntpd.pid", "/run/ptp4l.pid")
CONTAINER: Final = Path("/run/systemd/container")
"""There the clock is the host's, who sets it."""

_MEANING = (
    "certificates and jobs look as if they were not yet valid or already over; a station goes on from the time that"
    " it knows, but logs and events have the wrong one"
)
_FIX = (
    "timedatectl set-ntp true; without a network: timedatectl set-ntp false; timedatectl set-time 'YYYY-MM-DD HH:MM:SS'"
)


async def check(facts: Facts) -> list[Finding]:
    """One finding about the clock of a station that runs."""
    return look(facts.box(), facts.now())


def at_rest(box: Box) -> list[Finding]:
    """The same without a station: what it kept as certainly passed is in its state folder."""
    folder = box.state_dir
    floor = StationFiles(folder).floor() if (folder / "time-floor").exists() else 0
    return look(box, float(floor))


def look(box: Box, passed: float) -> list[Finding]:
    """One finding; ``passed`` is a time that has certainly passed."""
    wall = box.clock.wall()
    for least, why in ((passed, "was certainly reached before"), (RELEASED, "is when this release was made")):
        if wall < least - BEHIND_SECONDS:
            finding = f"the clock says {iso(wall)}, and {iso(least)} {why}"
            return [Finding(check="clock", severity="error", finding=finding, meaning=_MEANING, fix=_FIX)]
    setter = _who_sets_it()
    if setter:
        return [Finding(check="clock", severity="ok", finding=f"{iso(wall)}, set by {setter}")]
    waits = TIMESYNC.is_dir()
    return [
        Finding(
            check="clock",
            severity="warning",
            finding=f"{iso(wall)}, and "
            + ("no time server has answered since the start" if waits else "nothing sets this clock"),
            meaning="it drifts by seconds a day; far off, certificates and jobs are judged wrongly",
            fix="timedatectl timesync-status; name a server in /etc/systemd/timesyncd.conf"
            if waits
            else "apt install systemd-timesyncd; timedatectl set-ntp true",
        )
    ]


def _who_sets_it() -> str:
    if SYNCHRONIZED.exists():
        return "systemd-timesyncd"
    other = next((Path(path).stem for path in OTHERS if Path(path).exists()), "")
    return other or ("the machine around this container" if CONTAINER.exists() else "")
