"""Compiled pillars by their real input: what a compilation asked of its device, question after question.

What it asks next depends on what it was answered before. So all compilations of one tree are paths in a tree of
questions: a device follows its own answers to a pillar that is there, or to the place where nobody was yet. Who comes
to a place where somebody compiles already waits for him. Pillars that are the same are kept once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from gateway.render import Rendered
from gateway.render_reads import Question

KEPT_BYTES: Final = 64 * 1024 * 1024
NODE_BYTES: Final = 512
"""About what a place on a path takes in memory, beside the words of its question."""

ROOTS: Final = 8
"""Trees, with settings and pillar from outside, whose compilations are kept."""


class Leaf(Struct, frozen=True):
    """The end of a path; a refusal counts until a time."""

    rendered: Rendered
    until: float | None = None


class _Node(Struct, eq=False):
    question: Question
    after: dict[str, _Node | Leaf] = {}


class Place(Struct, frozen=True):
    """Where a device's answers lead to and nobody was yet."""

    root: str
    path: tuple[str, ...]


class PillarCache:
    """Paths and their ends. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._roots: OrderedDict[str, dict[str, _Node | Leaf]] = OrderedDict()
        self._contents: dict[str, bytes] = {}
        self._bytes = 0
        self._under_way: dict[Place, asyncio.Event] = {}

    def find(self, root: str, answer: Callable[[Question], str], now: float) -> Rendered | Place:
        """The pillar, or where to go on."""
        at = self._roots.get(root, {}).get("")
        path: list[str] = []
        while at is not None and not isinstance(at, Leaf):
            told = answer(at.question)
            path.append(told)
            at = at.after.get(told)
        if at is not None and (at.until is None or now < at.until):
            self._roots.move_to_end(root)
            return at.rendered
        return Place(root, tuple(path))

    def put(self, root: str, asked: Sequence[Question], answers: Sequence[str], leaf: Leaf) -> None:
        """Keep what a compilation came to, with what it asked, in order, and what it was answered."""
        rendered = self._shared(leaf.rendered)
        branch = self._roots.setdefault(root, {})
        self._roots.move_to_end(root)
        key = ""
        for question, told in zip(asked, answers, strict=True):
            at = branch.get(key)
            if not isinstance(at, _Node) or at.question != question:
                at = branch[key] = _Node(question, {})
                self._bytes += NODE_BYTES + sum(map(len, question))
            branch, key = at.after, told
        branch[key] = Leaf(rendered, leaf.until)
        self._bytes += NODE_BYTES
        while len(self._roots) > ROOTS:
            self._roots.popitem(last=False)
        if self._bytes > KEPT_BYTES:
            self._roots.clear()
            self._contents.clear()
            self._bytes = 0

    def _shared(self, rendered: Rendered) -> Rendered:
        digest = hashlib.sha256(rendered.data).hexdigest()
        if digest not in self._contents:
            self._contents[digest] = rendered.data
            self._bytes += len(rendered.data)
        # What it asked is the path to it.
        return Rendered([], self._contents[digest], rendered.problems, rendered.refused, rendered.why)

    def others(self, place: Place) -> asyncio.Event | None:
        """Set when whoever compiles from this place is done; None makes the asker that one, until ``done``."""
        event = self._under_way.get(place)
        if event is None:
            self._under_way[place] = asyncio.Event()
        return event

    def done(self, place: Place) -> None:
        """Those who waited here may look again."""
        self._under_way.pop(place).set()
