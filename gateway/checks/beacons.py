"""Do the station's own beacons look, and is what they say heard?"""

from __future__ import annotations

from typing import Final

from gateway.checks.finding import Facts, Finding

WORDS: Final = {
    "beacon_failed": (
        "a look of one of the station's beacons failed",
        "what it watches is not watched while that lasts; its event says why, and it looks again",
        "outstation events 'salt/beacon/*' --no-follow; mend what the error there says",
    ),
    "beacon_invalid": (
        "a beacon of the station is configured wrong",
        "it does not run; its event says what is wrong, and the others run",
        "outstation events 'salt/beacon/*' --no-follow; mend it under station.beacons or with beacons.modify",
    ),
    "beacon_event_lost": (
        "an event of one of the station's beacons could not be put down",
        "it is told as _lost with the next one, and said again at the next look",
        "look at the other findings: the disk, the store, or more events than can be kept",
    ),
}
"""By what is counted: the finding, what it means, and what mends it."""


async def check(facts: Facts) -> list[Finding]:
    """One finding for each way in which its beacons failed since the start."""
    found = []
    for link, reason, peer, count in facts.refusals():
        if reason in WORDS:
            finding, meaning, fix = WORDS[reason]
            said = f"{finding}, {count} times since the start ({reason} on {link}, {peer})"
            found.append(
                Finding(check="beacons", severity="warning", finding=said, meaning=meaning, fix=fix, about=reason)
            )
    return found
