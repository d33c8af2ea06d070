"""When did a master last confirm what devices returned?"""

from __future__ import annotations

from typing import Final

from device_agent.clock import iso
from gateway.checks.finding import Facts, Finding

HOUR: Final = 3600.0
WARN_SECONDS: Final = HOUR
ERROR_SECONDS: Final = 24 * HOUR


async def check(facts: Facts) -> list[Finding]:
    """One finding; none on a station without masters."""
    waiting = next((entry["pending"] for entry in await facts.spool_classes() if entry["class"] == "returns"), None)
    if waiting is None:
        return []
    confirmed = await facts.returns_confirmed()
    since = f"the last was confirmed at {iso(confirmed)}" if confirmed is not None else "none was ever confirmed"
    if not waiting:
        return [Finding(check="returns", severity="ok", finding=f"no return waits, {since}")]
    started = (await facts.station_view())["started"]
    # Without any: from the start, since when somebody could have taken one.
    age = max(0.0, facts.box().clock.wall() - (confirmed if confirmed is not None else started))
    if age < WARN_SECONDS:
        return [Finding(check="returns", severity="ok", finding=f"{waiting:,} on their way, {since}")]
    hours = f"{age / HOUR:.0f} hours"
    return [
        Finding(
            check="returns",
            severity="error" if age >= ERROR_SECONDS else "warning",
            finding=f"{waiting:,} wait, and no master has confirmed any for {hours} ({since})",
            meaning="whoever asked for these jobs does not know how they ended; nothing is lost, it waits on this disk",
            fix="look at the finding about the uplink; outstation spool status shows what waits",
        )
    ]
