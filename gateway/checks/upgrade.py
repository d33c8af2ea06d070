"""How did the last upgrade end, and is the package whole?"""

from __future__ import annotations

import asyncio
from typing import Final

from device_agent.clock import Clock, iso
from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding
from gateway.upgrade import machine
from gateway.upgrade import record as upgrades
from gateway.upgrade.judging import INSTALLED, is_cut_short

FOLDER: Final = upgrades.FOLDER
GUARD: Final = "outstation-upgrade-guard.service"
KEEPING_SECONDS: Final = 900.0
"""Longer than packing the old version takes, however slow the machine."""


_DOING: Final = {
    "keeping": "the version that runs is being kept",
    "watching": "the new version is being watched",
    "rolling_back": "the version before is put back",
}


async def check(_: Facts) -> list[Finding]:
    """What is known of the last upgrade, and whether dpkg has the package whole; nothing where there was none."""
    return await asyncio.to_thread(_look)


def at_rest(_: Box) -> list[Finding]:
    """The same, while the station stands still."""
    return _look()


def _look() -> list[Finding]:
    last = upgrades.read(FOLDER)
    status, version = machine.package()
    attended = last is not None and last.state in upgrades.UNDER_WAY and _is_attended(last)
    found = [] if last is None else [_ended(last, attended=attended)]
    # While it is replaced it is not whole, and the guard sees to it.
    if not attended:
        found += _package(status, version)
    return found


def _is_attended(last: upgrades.Record) -> bool:
    """Whether a package manager works or the guard looks on; also where systemd cannot be asked."""
    # The guard starts when the old version is packed, and only root sees the locks of a package manager.
    if last.state == "keeping" and abs(Clock().wall() - last.at) < KEEPING_SECONDS:
        return True
    return machine.unit(GUARD).active not in ("inactive", "failed") or machine.is_busy()


def _package(status: str, version: str) -> list[Finding]:
    if status in ("", INSTALLED) or status.startswith(("deinstall", "purge")):
        return []
    mends = f"apt install --reinstall --allow-downgrades {_file()}" if is_cut_short(status) else "dpkg --configure -a"
    return [
        Finding(
            check="upgrade",
            severity="error",
            finding=f"release {version} is half installed: dpkg says {status!r}",
            meaning="its installation was cut short; until it is finished apt may refuse every other package",
            fix=f"sudo {mends}",
            about="package",
        )
    ]


def _file() -> str:
    """A package that can be installed: the kept one while it is there."""
    kept = FOLDER / upgrades.PREVIOUS
    return str(kept) if kept.is_file() else "PATH-OF-THE-PACKAGE"


def _ended(last: upgrades.Record, *, attended: bool) -> Finding:
    words = f"from {last.before} to {last.after} at {iso(last.at)}"
    if last.state in ("healthy", "withdrawn"):
        way_back = "kept" if (FOLDER / upgrades.PREVIOUS).is_file() else "not kept"
        return Finding(check="upgrade", severity="ok", finding=f"{words}: {last.reason}; {last.before} is {way_back}")
    if last.state in upgrades.UNDER_WAY:
        doing = _DOING[last.state]
        if not attended:
            return Finding(
                check="upgrade",
                severity="warning",
                finding=f"{words} is not decided, and the upgrade guard does not run",
                meaning=f"it is judged at the next start of the machine, and {last.before} may then be put back",
                fix=f"sudo systemctl start {GUARD}",
            )
        return Finding(check="upgrade", severity="info", finding=f"{words}: {doing}")
    if last.state == "rolled_back":
        return Finding(
            check="upgrade",
            severity="warning",
            finding=f"{words} was taken back: {last.reason}",
            meaning=f"{last.before} is installed again, on the same store: nothing is lost; {_taken(last)}",
            fix="journalctl -u outstation-upgrade-guard; report it, and install a later version",
        )
    return Finding(
        check="upgrade",
        severity="error",
        finding=f"{words} failed, and so did the way back: {last.reason}",
        meaning="which version runs now is not certain; nothing is tried again by itself",
        fix=f"journalctl -u outstation-upgrade-guard; then apt install --reinstall --allow-downgrades {_file()}",
    )


def _taken(last: upgrades.Record) -> str:
    if last.after in last.rejected:
        return f"apt does not take {last.after} again by itself, and takes a later version"
    return f"as it does not run either, apt may take {last.after} again"
