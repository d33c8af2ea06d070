"""Do the engines run?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """One finding for each engine that ends again and again, or cannot be started."""
    return [
        Finding(
            check="engines",
            severity="warning",
            finding=f"engine {name} does not run: {why}",
            meaning="the station itself is not harmed; what the engine is there for is not done, and is tried again",
            fix=f"mend it, then: outstation engines restart {name}",
            about=name,
        )
        for name, why in facts.engines_failing()
    ]
