"""The order of steps: none before what it requires, and among those that could be next the one Salt takes. Pure.

A step is as early as its ``order`` says, and as early as the earliest of those that wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heappush
from typing import Any, Final

from msgspec import Struct

from gateway.orchestrate.words import REQUISITES, STEPS, Draft, Requisite, Step

LAST: Final = 1_000_000
GAP: Final = 100
EDGES: Final = 100_000
BETWEEN_NAMES: Final = 10_000.0
WEIGHT: Final = {kind: place for place, kind in enumerate(REQUISITES)}
AS_REQUIRE: Final = {"watch": "require", "watch_any": "require_any"}
"""Nothing here can be told that what it watches has changed, so it requires it, as in Salt."""

Key = tuple[tuple[float, float], str, str]


class Edge(Struct, frozen=True):
    """``of`` is required by ``by``: places in the list of drafts."""

    of: int
    by: int
    kind: str


def compiled(drafts: Sequence[Draft]) -> tuple[list[Step], list[str]]:
    """The steps in the order in which they are taken, or what is wrong with their requisites."""
    if len(drafts) > STEPS:
        return [], [
            f"{drafts[STEPS].place}: an orchestration has at most {STEPS:,} steps, and here are {len(drafts):,}"
        ]
    edges, errors = _edges(drafts)
    if errors:
        return [], errors
    order = _sorted(drafts, edges)
    if len(order) < len(drafts):
        round_about = _cycle(set(range(len(drafts))) - set(order), edges)
        words = ", ".join(f"({_named(drafts[e.by])}, '{e.kind}', {_named(drafts[e.of])})" for e in round_about)
        return [], [f"{drafts[round_about[0].by].place}: Recursive requisites were found: {words}"]
    places = {draft: number for number, draft in enumerate(order)}
    wanted: dict[int, list[Requisite]] = {}
    for edge in edges:
        wanted.setdefault(edge.by, []).append(Requisite(edge.kind, places[edge.of]))
    return [_step(drafts[draft], number, wanted.get(draft, [])) for number, draft in enumerate(order)], []


def _step(draft: Draft, number: int, requisites: list[Requisite]) -> Step:
    args = dict(draft.args)
    failhard, parallel = args.pop("failhard", False), args.pop("parallel", False)
    return Step(
        number=number,
        id=draft.id,
        name=draft.name,
        state=draft.state,
        fun=draft.fun,
        sls=draft.file.sls,
        place=draft.place,
        args=args,
        requisites=requisites,
        failhard=failhard is True,
        parallel=parallel is True,
    )


def _edges(drafts: Sequence[Draft]) -> tuple[list[Edge], list[str]]:
    errors: list[str] = []
    known: dict[tuple[str, str], list[int]] = {}
    tags: dict[str, int] = {}
    for number, draft in enumerate(drafts):
        if (other := tags.setdefault(draft.tag, number)) != number:
            errors.append(f"{draft.place}: the same step is there twice: {drafts[other].place} ({draft.tag})")
        words = [(draft.state, draft.name), (draft.state, draft.id), ("id", draft.id), ("id", draft.name)]
        words += [("sls", sls) for sls in (draft.file.sls, *draft.file.included_from)]
        for named in dict.fromkeys(words):
            known.setdefault(named, []).append(number)
    found: dict[Edge, None] = {}
    for number, draft in enumerate(drafts):
        for kind, word, value in draft.wanted:
            meant = _meant(known, word, value)
            if not meant:
                where = f"in state [{draft.name}] in SLS [{draft.file.sls}]"
                what = f"Referenced state does not exist for requisite [{kind}: ({word}: {value})] {where}"
                errors.append(f"{draft.place}: {what}")
            kept = AS_REQUIRE.get(kind, kind)
            found |= dict.fromkeys(Edge(each, number, kept) for each in meant)
            if len(found) > EDGES:
                return [], [f"{draft.place}: the steps have more than {EDGES:,} requisites between them"]
    return list(found), errors


def _meant(known: Mapping[tuple[str, str], list[int]], word: str, value: str) -> list[int]:
    if not any(letter in value for letter in "*?[]"):
        return known.get((word, value), [])
    every = (
        number
        for (kind, name), numbers in known.items()
        if kind == word and fnmatchcase(name, value)
        for number in numbers
    )
    return sorted(set(every))


def _free(drafts: Sequence[Draft]) -> int:
    """Where a step stands that says nothing about it: behind those that give a number."""
    free = 1
    for draft in drafts:
        order = draft.order
        if isinstance(order, int) and not isinstance(order, bool) and order > free - 1 and order > 0:
            free = order + GAP
    return free


def _number(order: Any, free: int) -> float:
    """Of ``order`` a number, ``first`` or ``last``."""
    match order:
        case "last":
            return free + LAST
        case "first":
            return 0
        case bool():
            return free
        case int() | float():
            return order
        case _:
            return free


def _sorted(drafts: Sequence[Draft], edges: Sequence[Edge]) -> list[int]:
    """Those that can be sorted; fewer than there are when some wait for each other."""
    free = _free(drafts)
    said = [_number(draft.order, free) for draft in drafts]
    children: list[list[Edge]] = [[] for _ in drafts]
    waits = [0] * len(drafts)
    for edge in edges:
        children[edge.of].append(edge)
        waits[edge.by] += 1

    def key(number: int) -> Key:
        heaviest, earliest = -1, float("inf")
        for edge in children[number]:
            if heaviest <= WEIGHT[edge.kind]:
                heaviest = WEIGHT[edge.kind]
                earliest = min(earliest, said[edge.by])
        draft = drafts[number]
        own = said[number] + draft.name_order / BETWEEN_NAMES
        # One from the end, as -1. Who is waited for by such a one comes early: Salt's order, kept.
        own += free + LAST if own < 0 else 0
        return (min(own, earliest), own), f"{draft.state}{draft.name}{draft.fun}", draft.tag

    ready = [(key(number), number) for number, count in enumerate(waits) if not count]
    heapify(ready)
    found = []
    while ready:
        _, number = heappop(ready)
        found.append(number)
        for edge in children[number]:
            waits[edge.by] -= 1
            if not waits[edge.by]:
                heappush(ready, (key(edge.by), edge.by))
    return found


def _cycle(left: set[int], edges: Sequence[Edge]) -> list[Edge]:
    """One round of steps that wait for each other. Each of those that are left waits for another of them."""
    waits = {edge.by: edge for edge in edges if edge.by in left and edge.of in left}
    at, path, seen = min(left), list[Edge](), dict[int, int]()
    while at not in seen:
        seen[at] = len(path)
        path.append(waits[at])
        at = waits[at].of
    return path[seen[at] :]


def _named(draft: Draft) -> str:
    told = {"SLS": draft.file.sls, "ID": draft.id}
    if draft.name != draft.id:
        told["NAME"] = draft.name
    return str(told)
