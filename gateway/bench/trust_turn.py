"""A turn of one chain on our side of ``bench trust``: what is asked, and what each part has taken."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Turn:
    """How many devices it is for, how many frames each sends, and whether the chain begins anew with it."""

    count: int
    frames: int
    first: bool


@dataclass(slots=True)
class Watch:
    """What each part has taken in this turn, and the lengths of what was made."""

    spent: dict[str, dict[str, float]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count what is done inside to this part."""
        before = time.process_time()
        yield
        entry = self.spent.setdefault(part, {"ok": 0, "cpu_seconds": 0.0})
        entry["cpu_seconds"] += time.process_time() - before

    def ok(self, count: int, *parts: str) -> None:
        """So many were proven to be right, in each of these parts."""
        for part in parts:
            self.spent[part]["ok"] += count

    def made(self, sizes: Mapping[str, int]) -> None:
        """The lengths of what was made."""
        self.sizes.update(sizes)
