"""Is there room for what waits for a master, and was something dropped?"""

from __future__ import annotations

from typing import Any, Final

from gateway.checks.finding import Facts, Finding
from gateway.spool.streams import GIVES_WAY

WARN_SHARE: Final = 0.7
ERROR_SHARE: Final = 0.95


async def check(facts: Facts) -> list[Finding]:
    """A finding for each class that fills its budget or has lost something; none where nothing is spooled."""
    classes = await facts.spool_classes()
    if not classes:
        return []
    found = [each for entry in classes for each in (*_fill(entry), *_dropped(entry))]
    if found:
        return found
    pending = sum(entry["pending"] for entry in classes)
    return [Finding(check="spool", severity="ok", finding=f"{pending:,} items wait, every class has room")]


def _fill(entry: dict[str, Any]) -> list[Finding]:
    name, share = entry["class"], entry["pending_bytes"] / entry["budget_bytes"]
    if share < WARN_SHARE:
        return []
    full = share >= ERROR_SHARE
    meaning = (
        "beyond it the oldest give way, and are counted as dropped"
        if name in GIVES_WAY
        else "beyond it no job and no answer is taken any more, until a master takes some"
    )
    return [
        Finding(
            check="spool",
            severity="error" if full else "warning",
            finding=f"{name} fill {share:.0%} of their budget: {entry['pending']:,} items wait",
            meaning=meaning,
            fix=f"bring the uplink back (outstation spool status), or raise spool.{name}_megabytes in the settings",
            about=f"{name} room",
        )
    ]


def _dropped(entry: dict[str, Any]) -> list[Finding]:
    # What a newer value of the same tag took the place of was meant to go.
    lost = {reason: count for reason, count in sorted(entry["dropped"].items()) if reason != "coalesced" and count}
    if not lost:
        return []
    words = ", ".join(f"{count:,} for {reason}" for reason, count in lost.items())
    return [
        Finding(
            check="spool",
            severity="warning",
            finding=f"{sum(lost.values()):,} {entry['class']} never reached a master: {words}",
            meaning="they are gone, and the ledger counts them; it happened at some time since this store was made",
            fix="outstation spool status; docs/spool.md says what each reason is",
            about=f"{entry['class']} dropped",
        )
    ]
