"""Is there room on the disk that holds the store?"""

from __future__ import annotations

import shutil
from pathlib import Path

from gateway.checks.finding import Facts, Finding

WARN_FREE = 0.15
ERROR_FREE = 0.03


async def check(facts: Facts) -> list[Finding]:
    """One finding about free space."""
    folder = facts.state_dir()
    usage = shutil.disk_usage(folder)
    share = usage.free / usage.total
    text = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f} GiB at {folder}"
    aside = _aside_bytes(Path(folder))
    if aside:
        text += f", {aside / 2**20:.0f} MiB of it in damaged stores that are removed after 14 days"
    if facts.disk_is_full():
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


def _aside_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("station.sqlite.damaged-*"))
