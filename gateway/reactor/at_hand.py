"""Events that are still in memory when their turn comes, so that they need not be read again; the rest is on disk."""

from __future__ import annotations

from typing import Final

from gateway.reactor.book import Matched

BYTES: Final = 8 * 1024 * 1024
"""Of their data, all together."""

OVERHEAD: Final = 512
"""Bytes that an event without data counts for."""


class AtHand:
    """The first that came, as many as there is room for: they are also the first that are asked for."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Matched, int]] = {}
        self._bytes = 0

    def keep(self, matched: Matched, size: int) -> None:
        """Keep one with data of this size in bytes, if there is room."""
        if matched.id in self._kept or self._bytes + size + OVERHEAD > BYTES:
            return
        self._kept[matched.id] = (matched, size + OVERHEAD)
        self._bytes += size + OVERHEAD

    def take(self, number: int) -> Matched | None:
        """One that is here, which leaves; None for one that is to be read."""
        matched, size = self._kept.pop(number, (None, 0))
        self._bytes -= size
        return matched
