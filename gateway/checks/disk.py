"""Is there room on the disk that holds the store?"""

from __future__ import annotations

import shutil

from gateway.checks.finding import Facts, Finding

WARN_FREE = 0.15
ERROR_FREE = 0.03


async def check(facts: Facts) -> list[Finding]:
    """One finding about free space."""
    folder = facts.state_dir()
    usage = shutil.disk_usage(folder)
    share = usage.free / usage.total
    text = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f} GiB at {folder}"
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
