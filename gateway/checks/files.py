"""Does what devices ask for have room in the cache of files?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """One finding when the last file for which room was wanted had none; else none."""
    why = facts.cache_full()
    if not why:
        return []
    return [
        Finding(
            check="files",
            severity="warning",
            finding=f"the cache of files is full: {why}",
            meaning="devices do not get files that are not here; what is here is served on",
            fix="raise files.cache_megabytes; outstation files cache shows what is in it, jobs list what waits",
        )
    ]
