"""Did what the station runs by itself succeed?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """One finding for each entry of the schedule whose last run was not made, or failed on some device."""
    return [
        Finding(
            check="schedule",
            severity="warning",
            finding=f"the last run of {name} in the schedule did not succeed: {why}",
            meaning="what it is there for was not done, or not everywhere; it runs again at its next time",
            fix=f"outstation schedule show {name}",
            about=name,
        )
        for name, why in await facts.schedule_failing()
    ]
