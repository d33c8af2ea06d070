"""How did the last upgrade end, and is the package whole?"""

from __future__ import annotations

import asyncio
from typing import Final

from device_agent.clock import iso
from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding
from gateway.upgrade import machine
from gateway.upgrade import record as upgrades
from gateway.upgrade.judging import INSTALLED, is_cut_short

FOLDER: Final = upgrades.FOLDER


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
    found = [] if last is None else [_ended(last)]
    # While it is replaced it is not whole, and the guard sees to it.
    if last is None or last.state not in upgrades.UNDER_WAY:
        found += _package(status, version)
    return found


def _package(status: str, version: str) -> list[Finding]:
    if status in ("", INSTALLED) or status.startswith(("deinstall", "purge")):
        return []
    mends = f"apt install --reinstall ./outstation_{version}_*.deb" if is_cut_short(status) else "dpkg --configure -a"
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


def _ended(last: upgrades.Record) -> Finding:
    words = f"from {last.before} to {last.after} at {iso(last.at)}"
    if last.state in ("healthy", "withdrawn"):
        way_back = "kept" if (FOLDER / upgrades.PREVIOUS).is_file() else "not kept"
        return Finding(check="upgrade", severity="ok", finding=f"{words}: {last.reason}; {last.before} is {way_back}")
    if last.state in upgrades.UNDER_WAY:
        doing = _DOING[last.state]
        return Finding(check="upgrade", severity="info", finding=f"{words}: {doing}")
    if last.state == "rolled_back":
        return Finding(
            check="upgrade",
            severity="warning",
            finding=f"{words} was taken back: {last.reason}",
            meaning=f"{last.before} runs again, on the same store: nothing is lost; apt does not take"
            f" {last.after} again by itself, and takes a later version",
            fix="journalctl -u outstation-upgrade-guard; report it, and install a later version",
        )
    return Finding(
        check="upgrade",
        severity="error",
        finding=f"{words} failed, and so did the way back: {last.reason}",
        meaning="which version runs now is not certain; nothing is tried again by itself",
        fix=f"journalctl -u outstation-upgrade-guard; then apt install --allow-downgrades {FOLDER / upgrades.PREVIOUS}",
    )
