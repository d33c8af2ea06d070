"""Which faults, when and for how long: a pure function of a seed, so that a run that failed can be repeated."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Literal

Kind = Literal["kill", "cut", "slow", "fill", "log", "rollback", "clone", "disk", "descriptors", "names", "ipv6"]

LINKS: dict[str, tuple[str, ...]] = {"link-a": ("link-a",), "link-b": ("link-b",), "links": ("link-a", "link-b")}
"""What a fault of a link is about, and which links that are."""

WARM = 0.04
"""Part of the run before the first fault."""

CALM = 0.12
"""Part of the run after the last fault has ended."""

RUN = "run"
"""That the gateway runs, for faults of which it has to see something for a while."""

SWARMS = "swarms"
"""Devices join again when their swarm was killed: what their site then loses they join for once more."""

EVERYWHERE = frozenset({"gateway", "disk", "names", "link-a", "link-b", "master-a", "master-b", RUN, SWARMS})
"""What has to be whole while two copies of a store are told from each other."""

STORE: frozenset[Kind] = frozenset({"fill", "log", "rollback", "clone", "disk"})
"""Faults during which, and shortly after which, the ledger may name drops."""

LONGEST = 0.2
"""Longest fault, as a part of the run."""

DRAWS = 20
"""Cards that are looked at before it is clear that nothing fits."""

STEP_SECONDS = 0.5
CALM_SECONDS = 6.0
"""After the last fault of the shortest plan."""

FIRST_SECONDS = 3.0
"""Before the first fault of the shortest plan."""

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
            return frozenset({"gateway", RUN})  # The gateway ends with its broker.
        if self.kind == "kill" and self.subject == "gateway":
            return frozenset({"gateway", RUN})
        if self.subject == "swarm":
            return frozenset({f"swarm-{self.way}", SWARMS})
        if self.kind in ("rollback", "clone"):
            return EVERYWHERE
        if self.kind == "log":
            return frozenset({"gateway", "disk", RUN, SWARMS})
        if self.kind == "disk":
            return frozenset({"gateway", "disk"})
        if self.kind in ("names", "ipv6"):
            link = LINKS[self.subject][0]
            return frozenset({"names", link, f"master-{link[-1]}", RUN})
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
    return [*kills, *links, Sort("fill", "disk", 2, 3.0, 15.0), *_sorts_of_the_machine()]


def _sorts_of_the_machine() -> list[Sort]:
    """What becomes of the gateway's files, its limits, and the way to its masters."""
    return [
        Sort("log", "gateway", 1, 5.0, 8.0, ("cut",)),
        Sort("log", "gateway", 1, 5.0, 8.0, ("gone",)),
        Sort("rollback", "gateway", 1, 10.0, 16.0),
        Sort("clone", "gateway", 1, 10.0, 16.0),
        Sort("disk", "gateway", 2, 5.0, 12.0, ("eio-write", "eio-sync")),
        Sort("descriptors", "gateway", 1, 4.0, 12.0),
        Sort("names", "link-a", 1, 9.0, 20.0),
        Sort("ipv6", "link-b", 1, 9.0, 20.0),
    ]


def once(seed: int, swarms: int = 1) -> list[Fault]:
    """The shortest plan that has every sort once, each as early as it is in no other's way."""
    chance = random.Random(seed)
    kinds = sorts(swarms)
    chance.shuffle(kinds)
    # Those that stand alone in time come first: the others fill what is left.
    kinds.sort(key=lambda sort: -sort.shortest)
    plan: list[Fault] = []
    for sort in kinds:
        lasts = round(min(sort.longest, chance.uniform(1.0, 1.4) * sort.shortest), 2)
        way = chance.choice(sort.ways)
        ends = sorted({FIRST_SECONDS, *(round(other.end + BETWEEN_SECONDS, 2) + 0.01 for other in plan)})
        if sort.subject == "swarm":
            # Devices that have just joined would have to join again.
            ends = [at for at in ends if all(at > other.end for other in plan if SWARMS in other.touches)]
        tried = (Fault(round(at, 2), lasts, sort.kind, sort.subject, way) for at in ends)
        plan.append(next(fault for fault in tried if not _clashes(fault, plan)))
    return sorted(plan, key=lambda fault: fault.start)


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
        # Where all that could come is in the way of another fault, it waits.
        while (
            fault := _drawn(chance, at, (seconds, end), chain(late[:], islice(deck, DRAWS)), late, turns, plan)
        ) is None:
            at += STEP_SECONDS
            if at >= end - STEP_SECONDS:
                raise ValueError(f"{count} faults do not fit into {seconds:g} seconds; {number} do")
        plan.append(fault)
    return sorted(plan, key=lambda fault: fault.start)


def _drawn(
    chance: random.Random,
    at: float,
    bounds: tuple[float, float],
    cards: Iterable[Sort],
    late: list[Sort],
    turns: dict[tuple[str, ...], Iterator[str]],
    plan: Sequence[Fault],
) -> Fault | None:
    """The first card that can come now; those before it are ``late``, and come as soon as they can."""
    seconds, end = bounds
    for sort in cards:
        longest = max(sort.shortest, min(sort.longest, seconds * LONGEST))
        lasts = min(chance.uniform(sort.shortest, longest), end - at)
        way = next(turns.setdefault(sort.ways, _in_turn(chance, sort.ways)))
        fault = Fault(round(at, 2), round(lasts, 2), sort.kind, sort.subject, way)
        if not _clashes(fault, plan):
            if sort in late:
                late.remove(sort)
            return fault
        if sort not in late:
            late.append(sort)
    return None


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


def windows(plan: Sequence[Fault], kinds: Collection[Kind]) -> list[tuple[float, float]]:
    """When faults of these kinds were, from and to."""
    return [(fault.start, fault.end) for fault in plan if fault.kind in kinds]


def undisturbed(fault: Fault, plan: Sequence[Fault]) -> float:
    """How long the gateway can look at a fault: the longest time in which no other fault stops it."""
    others = [other for other in plan if other is not fault and {"gateway", RUN} <= other.touches]
    begin, longest = fault.start, 0.0
    for other in sorted(others, key=lambda each: each.start):
        if other.end > begin and other.start < fault.end:
            longest = max(longest, other.start - begin)
            begin = other.end
    return max(longest, fault.end - begin)
