"""Do the returners take what is returned?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """One finding for each returner whose last attempt was in vain."""
    return [
        Finding(
            check="returners",
            severity="warning",
            finding=f"returner {name} does not take returns: {why}",
            meaning="they wait on the disk and are sent again, until returner_limits.give_up_hours have passed",
            fix="mend what it says; outstation returners list shows what waits and what is lost",
            about=name,
        )
        for name, why in facts.returners_failing()
    ]
