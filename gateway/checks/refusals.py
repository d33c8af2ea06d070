"""Was input from a network refused, why, and from whom?"""

from __future__ import annotations

from collections import Counter

from gateway.checks import beacons
from gateway.checks.finding import Facts, Finding
from gateway.refusal_causes import is_own

NAMED = 20


async def check(facts: Facts) -> list[Finding]:
    """A finding for each reason and peer, most frequent first; of this station's own reasons one, without a peer."""
    refused = [each for each in facts.refusals() if each[1] not in beacons.WORDS]
    if not refused:
        return [Finding(check="refusals", severity="ok", finding="nothing was refused since the start")]
    own = Counter({(link, reason): 0 for link, reason, _, _ in refused if is_own(reason)})
    for link, reason, _, count in refused:
        if is_own(reason):
            own[link, reason] += count
    others = [each for each in refused if not is_own(each[1])]
    return [*(_own(*key, count) for key, count in own.most_common()), *_others(others)]


def _own(link: str, reason: str, count: int) -> Finding:
    return Finding(
        check="refusals",
        severity="info",
        finding=f"{count} not taken on {link} since the start, for a reason of this station: {reason}",
        meaning="what was sent is not at fault: this station had run out of something, or something failed in it; it is"
        " sent again, or was counted",
        fix="look at the findings about the store, the disk and open-files; docs/reasons.md says what each reason is",
        about=f"{link} {reason}",
    )


def _others(refused: list[tuple[str, str, str, int]]) -> list[Finding]:
    return [
        Finding(
            check="refusals",
            severity="info",
            finding=f"{count} refused on {link}: {reason}, from {peer}",
            meaning=meaning,
            fix=fix,
        )
        for link, reason, peer, count in refused[:NAMED]
        for meaning, fix in [_words(link, reason)]
    ]


def _words(link: str, reason: str) -> tuple[str, str]:
    """What it means, and what to do."""
    if link == "api":
        return "somebody asked for what the policy does not let him do", "outstation audit list --verdict deny"
    if reason.startswith("token_"):
        return (
            "a device came with a token that does not let it in",
            "outstation keys token list; make another for a device that may come, look who has the old one",
        )
    if link == "files":
        return (
            "a file did not come, or not as it was promised; other files were served",
            "outstation files cache; docs/files.md says what each reason is",
        )
    if link == "salt" and reason in {"old_jid", "early_jid"}:
        return (
            "an order of a Salt master is taken for a day by the time in its job id, and this one was of another",
            "date -u here and on the master; where it is wrong: timedatectl set-ntp true (docs/salt.md)",
        )
    if link.startswith("questions_of_"):
        return (
            "it asked for what it does not get, and was told why; others were answered",
            "look at that peer's job: docs/files.md, docs/mine.md and docs/pillar.md name the reasons",
        )
    return (
        "these bytes were not an acceptable message; nothing else was affected",
        "look at that peer: an older release, a broken one, or somebody who should not be there",
    )
