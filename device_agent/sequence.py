"""Gives what leaves a device its place: (outbox, sequence), which no other message of any device ever has.

The outbox is random, made with its file: a device that lost its flash is not mistaken for one that repeats itself. A
sequence is given only below a limit that is on flash, and after a start the first one given is that limit: so none is
given twice, however the device ended.
"""

from __future__ import annotations

from typing import Final

from device_agent.protocol import limits

RESERVED: Final = 1024
"""Sequences reserved on flash at a time; a device that was not stopped cleanly skips at most these."""

UNBOUNDED: Final = 2**63 - 1


class Sequence:
    """The numbers of one outbox. Without an outbox, or with none reserved, a message gets none: ``(b"", 0)``."""

    __slots__ = ("_limit", "_next", "outbox")

    def __init__(self, outbox: bytes = b"", limit: int = 0) -> None:
        self.outbox = outbox
        self._next = 1
        self._limit = limit

    def take(self) -> tuple[bytes, int]:
        """The outbox and the next sequence in it, or ``(b"", 0)``: then the message is known by its job alone."""
        if not self.outbox or self._next >= self._limit:
            return b"", 0
        self._next += 1
        return self.outbox, self._next - 1

    @property
    def next(self) -> int:
        """The lowest sequence that was not given yet."""
        return self._next

    @property
    def limit(self) -> int:
        """The lowest sequence that is not reserved."""
        return self._limit

    @property
    def scarce(self) -> bool:
        """More should be reserved."""
        return self._limit - self._next < RESERVED // 2

    def start(self, outbox: bytes) -> None:
        """Begin anew, in another outbox."""
        assert len(outbox) == limits.OUTBOX_BYTES
        self.outbox, self._next, self._limit = outbox, 1, 0

    def reserved(self, limit: int) -> None:
        """All below this are on flash as given."""
        self._limit = max(self._limit, limit)

    def restored(self, outbox: bytes, limit: int) -> None:
        """An outbox as it was on flash: what is below the limit may have been given."""
        self.outbox, self._next, self._limit = outbox, max(1, limit), limit
