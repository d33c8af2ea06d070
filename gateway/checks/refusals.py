"""Was input from a network refused, why, and from whom?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding

NAMED = 20


async def check(facts: Facts) -> list[Finding]:
    """A finding for each reason and peer, most frequent first."""
    refused = facts.refusals()
    if not refused:
        return [Finding(check="refusals", severity="ok", finding="nothing was refused since the start")]
    return [
        Finding(
            check="refusals",
            severity="info",
            finding=f"{count} refused on {link}: {reason}, from {peer}",
            meaning="these bytes were not an acceptable message; nothing else was affected",
            fix="look at that peer: an older release, a broken one, or somebody who should not be there",
        )
        for link, reason, peer, count in refused[:NAMED]
    ]
