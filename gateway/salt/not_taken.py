"""Which item of a stream a Salt master does not take: the batch around it is halved until it stands alone. Pure.

An item that stands alone and is not confirmed again and again says nothing of itself while the master confirms nothing
else either, as with a full disk: whoever is to let go of it asks the master for something else first.
"""

from __future__ import annotations

from typing import Final

from gateway.salt.pace import CHUNK
from upstream.frames import Stream

TRIES: Final = 3
"""How often an item is told alone before it is asked whether the master takes anything."""


class NotTaken:
    """How much is told at once, and how often what stands first was not confirmed alone."""

    def __init__(self) -> None:
        self._most: dict[Stream, int] = {}
        self._first: tuple[str, Stream, int] | None = None
        self._tries = 0

    def most(self, stream: Stream) -> int:
        """Items of a stream to tell in one message."""
        return self._most.get(stream, CHUNK)

    def confirmed(self, stream: Stream) -> None:
        """The message was confirmed: the next one may be larger."""
        self._most[stream] = min(CHUNK, self.most(stream) * 2)

    def refused(self, master: str, stream: Stream, first: int, count: int) -> bool:
        """A message of so many items was not confirmed; whether it is time to doubt the first, which stands alone."""
        self._most[stream] = max(1, count // 2)
        if count > 1:
            return False
        if self._first != (master, stream, first):
            self._first, self._tries = (master, stream, first), 0
        self._tries += 1
        return self._tries >= TRIES
