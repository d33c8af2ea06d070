"""What the figures beside stock Salt are to be: whether each aim is met, and what is missing to say so. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.peers.salt_rounds import BARE, OURS, Contender, ratios

DELTAPROXY = "deltaproxy"
TIMES_BARE = 1.3
"""At most so many times as long as a bare client that brings the same answers to the same master."""

QUICKER_THAN_DELTAPROXY = 20.0
"""At least so many times as quick for each device as Salt's own way."""


@dataclass(frozen=True)
class Aim:
    """A ratio of walls for each answer, and what it is to be."""

    of: str
    bound: float
    most: bool
    """At most so much; else at least."""
    ratio: float | None
    """None: there was nobody to compare with."""

    @property
    def met(self) -> bool | None:
        """None where nobody knows."""
        if self.ratio is None:
            return None
        return self.ratio <= self.bound if self.most else self.ratio >= self.bound

    def words(self) -> str:
        """For people."""
        wanted = f"the aim is at {'most' if self.most else 'least'} {self.bound:g}"
        if self.ratio is None:
            return f"{self.of}: not measured; {wanted}"
        return f"{self.of}: wall for each answer {self.ratio:.2f}; {wanted}: {'met' if self.met else 'missed'}"

    def as_json(self) -> str:
        """A line of JSON."""
        bound = {"at_most" if self.most else "at_least": self.bound}
        ratio = None if self.ratio is None else round(self.ratio, 3)
        return json.dumps({"part": "aim", "of": self.of, "figure": "wall", "ratio": ratio, **bound, "met": self.met})


def aims(found: Mapping[str, Contender]) -> list[Aim]:
    """Both. Of several deltaproxies the quickest counts, of those whose devices have all answered."""
    compared = {name: figures["wall"] for name, figures in ratios(found).items()} if whole(found[OURS]) else {}
    bare = compared[BARE] if compared and whole(found[BARE]) else None
    proxies = {name: compared[name] for name in compared if name.startswith(DELTAPROXY) and whole(found[name])}
    quickest = min(proxies, key=lambda name: proxies[name], default=None)
    return [
        Aim(f"{OURS} / {BARE}", TIMES_BARE, most=True, ratio=1 / bare if bare is not None else None),
        Aim(
            f"{quickest or DELTAPROXY} / {OURS}",
            QUICKER_THAN_DELTAPROXY,
            most=False,
            ratio=proxies[quickest] if quickest is not None else None,
        ),
    ]


def missing(found: Mapping[str, Contender], proxies: Sequence[int]) -> list[str]:
    """What did not answer that has to: every device of ours, of the bare client, and of one deltaproxy if any is asked.

    Larger deltaproxies are tried until one is too many for the machine.
    """
    said = [
        f"{name}: {found[name].middle.answers} of {found[name].devices} devices answered"
        for name in (OURS, BARE)
        if not whole(found[name])
    ]
    tried = [name for name in found if name.startswith(DELTAPROXY)]
    if proxies and not any(whole(found[name]) for name in tried):
        said.append(f"{DELTAPROXY}: none of {', '.join(map(str, proxies))} devices answered whole")
    return said


def whole(one: Contender) -> bool:
    """Whether every device answered in every round."""
    return one.middle.answers >= one.devices
