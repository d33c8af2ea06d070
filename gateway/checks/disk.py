"""Is there room on the disk that holds the store?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding

WARN_FREE = 0.15
ERROR_FREE = 0.03


async def check(facts: Facts) -> list[Finding]:
    """One finding about free space, and one about free inodes where those are few."""
    return look(facts.state_dir(), full=facts.disk_is_full())


def at_rest(box: Box) -> list[Finding]:
    """The same without a station: of the folder, or of the one in which it will be made."""
    folder = next(each for each in (box.state_dir, *box.state_dir.parents) if each.is_dir())
    return look(str(folder), full=False)


def look(folder: str, *, full: bool) -> list[Finding]:
    """What is free there."""
    return [*_room(folder, full=full), *_inodes(folder)]


def _room(folder: str, *, full: bool) -> list[Finding]:
    usage = shutil.disk_usage(folder)
    share = usage.free / usage.total
    text = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f} GiB at {folder}"
    aside = _aside_bytes(Path(folder))
    if aside:
        text += f", {aside / 2**20:.0f} MiB of it in damaged stores that are removed after 14 days"
    if full:
        return [
            Finding(
                check="disk",
                severity="error",
                finding=f"full: {text}",
                meaning="events and telemetry are not kept, and counted in the ledger as dropped for disk_full;"
                " jobs and their answers go on as long as the reserve lasts, then they stay on the devices",
                fix=f"make room: du -xh {folder} | sort -h | tail; then outstation spool status",
            )
        ]
    if share >= WARN_FREE:
        return [Finding(check="disk", severity="ok", finding=text)]
    return [
        Finding(
            check="disk",
            severity="warning" if share >= ERROR_FREE else "error",
            finding=text,
            meaning="when it is full, jobs are refused and returns stay on the devices until there is room",
            fix=f"du -xh {folder} | sort -h | tail",
        )
    ]


def _inodes(folder: str) -> list[Finding]:
    found = os.statvfs(folder)
    # Some file systems make them as they are needed, and count none.
    if not found.f_files or found.f_favail / found.f_files >= ERROR_FREE:
        return []
    return [
        Finding(
            check="disk",
            severity="error" if not found.f_favail else "warning",
            finding=f"{found.f_favail:,} of {found.f_files:,} inodes are left at {folder}",
            meaning="without one no file can be made there, however much room there is",
            fix=f"du --inodes -x {folder} | sort -n | tail",
            about="inodes",
        )
    ]


def _aside_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("station.sqlite.damaged-*"))
