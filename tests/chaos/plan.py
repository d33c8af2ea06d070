"""Which faults, when and for how long: a pure function of a seed, so that a run that failed can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Literal

Kind = Literal["kill", "cut", "slow", "fill"]

LINKS: dict[str, tuple[str, ...]] = {"link-a": ("link-a",), "link-b": ("link-b",), "links": ("link-a", "link-b")}
"""What a fault of a link is about, and which links that are."""

WARM = 0.04
"""Part of the run before the first fault."""

CALM = 0.12
"""Part of the run after the last fault has ended."""

LONGEST = 0.2
"""Longest fault, as a part of the run."""

DRAWS = 500
"""Cards that are looked at before it is clear that nothing fits."""

BETWEEN_SECONDS = 1.5
"""Between two faults of the same thing."""


@dataclass(frozen=True)
class Sort:
    """One sort of fault: what it does to what, how often it is drawn, and how long it lasts."""

    kind: Kind
    subject: str
    weight: int
    shortest: float
    longest: float
    ways: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class Fault:
    """From ``start`` for ``seconds``, counted from the beginning of the faults; then it is undone."""

    start: float
    seconds: float
    kind: Kind
    subject: str
    way: str = ""

    @property
    def end(self) -> float:
        """When it is undone."""
        return self.start + self.seconds

    @property
    def touches(self) -> frozenset[str]:
        """What may have no second fault meanwhile."""
        if self.kind == "kill" and self.subject == "broker":
            return frozenset({"gateway"})  # The gateway ends with its broker.
        if self.subject == "swarm":
            return frozenset({f"swarm-{self.way}"})
        return frozenset(LINKS.get(self.subject, (self.subject,)))

    def __str__(self) -> str:
        way = f" ({self.way})" if self.way else ""
        return f"{self.start:7.1f} s  {self.kind} {self.subject}{way} for {self.seconds:.1f} s"


def sorts(swarms: int) -> list[Sort]:
    """Every sort of fault there is, for so many swarms."""
    kills = [
        Sort("kill", "gateway", 3, 0.1, 8.0),
        Sort("kill", "broker", 2, 0.1, 0.2),
        Sort("kill", "master-a", 2, 0.2, 25.0),
        Sort("kill", "master-b", 2, 0.2, 25.0),
        Sort("kill", "swarm", 2, 0.5, 5.0, tuple(str(number) for number in range(swarms))),
    ]
    links = [
        sort
        for subject in LINKS
        for sort in (
            Sort("cut", subject, 1, 1.0, 25.0, ("down", "hole")),
            Sort("slow", subject, 1, 4.0, 25.0, ("128", "512", "2000")),
        )
    ]
    return [*kills, *links, Sort("fill", "disk", 2, 2.0, 15.0)]


def draw(seed: int, count: int, seconds: float, swarms: int = 1) -> list[Fault]:
    """The plan: ``count`` faults in order of their start, spread over the run; every sort comes before any again."""
    chance = random.Random(seed)
    begin, end = seconds * WARM, seconds * (1 - CALM)
    deck = _deck(chance, sorts(swarms))
    slot = (end - begin) / count
    plan: list[Fault] = []
    late: list[Sort] = []
    turns: dict[tuple[str, ...], Iterator[str]] = {}
    for number in range(count):
        at = begin + (number + 0.8 * chance.random()) * slot
        # What was in the way of another fault comes as soon as it is not.
        for sort in chain(late[:], islice(deck, DRAWS)):
            longest = max(sort.shortest, min(sort.longest, seconds * LONGEST))
            lasts = min(chance.uniform(sort.shortest, longest), end - at)
            way = next(turns.setdefault(sort.ways, _in_turn(chance, sort.ways)))
            fault = Fault(round(at, 2), round(lasts, 2), sort.kind, sort.subject, way)
            if not _clashes(fault, plan):
                plan.append(fault)
                if sort in late:
                    late.remove(sort)
                break
            if sort not in late:
                late.append(sort)
        else:
            raise ValueError(f"{count} faults do not fit into {seconds:g} seconds; {number} do")
    return sorted(plan, key=lambda fault: fault.start)


def _deck(chance: random.Random, kinds: Sequence[Sort]) -> Iterator[Sort]:
    """Cards for ever: all sorts shuffled, each as often as it weighs."""
    # The first round has each once, so that a short run sees as many sorts as it has faults.
    first = list(kinds)
    chance.shuffle(first)
    yield from first
    while True:
        cards = [sort for sort in kinds for _ in range(sort.weight)]
        chance.shuffle(cards)
        yield from cards


def _in_turn(chance: random.Random, ways: Sequence[str]) -> Iterator[str]:
    """One after the other for ever, from anyone."""
    first = chance.randrange(len(ways))
    return cycle([*ways[first:], *ways[:first]])


def _clashes(fault: Fault, plan: Sequence[Fault]) -> bool:
    return any(
        fault.touches & other.touches
        and fault.start < other.end + BETWEEN_SECONDS
        and other.start < fault.end + BETWEEN_SECONDS
        for other in plan
    )


def windows(plan: Sequence[Fault], kind: Kind) -> list[tuple[float, float]]:
    """When faults of a kind were, from and to."""
    return [(fault.start, fault.end) for fault in plan if fault.kind == kind]
