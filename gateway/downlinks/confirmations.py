"""How devices are told that their returns are on disk: in as few messages as it takes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from device_agent.protocol import limits
from device_agent.protocol.links import Answered

BROADCASTS_MOST: Final = 4
"""Each device verifies the signature of every broadcast. More of them cost a site more than a message to each."""

JIDS_MOST: Final = limits.OPEN_JOBS


class Confirmation(NamedTuple):
    """These devices (names) may forget their returns for these jobs."""

    jids: list[str]
    names: Sequence[str]


def confirmations(
    answered: Answered, is_most: Callable[[Sequence[str]], bool]
) -> tuple[list[Confirmation], list[Confirmation]]:
    """Broadcasts for jobs that most of the site has answered, and a message for each device with all its other jobs.

    Args:
        answered: Names by the jid of their job.
        is_most: Whether so many names are better told by a broadcast.
    """
    together: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for jid, names in answered.items():
        if is_most(names):
            together[tuple(names)].append(jid)
    if len(together) > BROADCASTS_MOST:
        together.clear()
    broadcasts = [Confirmation(jids, names) for names, all_jids in together.items() for jids in _pages(all_jids)]
    told = {jid for jids in together.values() for jid in jids}
    jids_of: dict[str, list[str]] = defaultdict(list)
    for jid, names in answered.items():
        if jid not in told:
            for name in names:
                jids_of[name].append(jid)
    same: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, jids in jids_of.items():
        same[tuple(jids)].append(name)
    single = [Confirmation(jids, names) for all_jids, names in same.items() for jids in _pages(list(all_jids))]
    return broadcasts, single


def _pages(jids: list[str]) -> list[list[str]]:
    return [jids[at : at + JIDS_MOST] for at in range(0, len(jids), JIDS_MOST)]
