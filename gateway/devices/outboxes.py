"""What was taken from the outbox of each device: a message that is on disk here is known when it comes again.

A device numbers what it says: (outbox, sequence). What was taken is kept as ranges of sequences, written in the commit
that takes it. The hello of a device says below which sequence nothing will come any more, so that the gaps that a crash
of the device leaves do not add up.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple

from device_agent.parts import Part
from device_agent.protocol.messages import decode_stored, encode_value
from gateway.metrics import Metrics
from gateway.store.reader import Reader
from gateway.store.writer import Statement

RANGES: Final = 64
"""Ranges kept of one outbox. With more gaps than that between two hellos, what is beyond is known by its job alone."""

_PUT: Final = "INSERT OR REPLACE INTO outboxes (device, outbox, taken) VALUES (?, ?, ?)"


class Message(NamedTuple):
    """One message of a device: whose, of which outbox, and where in it."""

    device: str
    outbox: bytes
    sequence: int


class Taken:
    """The sequences of one outbox that are taken: ranges from lowest to highest, both ends included."""

    __slots__ = ("highs", "lows", "outbox")

    def __init__(self, outbox: bytes, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.outbox = outbox
        self.lows: list[int] = []
        self.highs: list[int] = []
        for low, high in ranges:
            self.lows.append(low)
            self.highs.append(high)

    def __contains__(self, sequence: int) -> bool:
        at = bisect.bisect_right(self.lows, sequence) - 1
        return at >= 0 and sequence <= self.highs[at]

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges, lowest first; none touches the next."""
        return list(zip(self.lows, self.highs, strict=True))

    def take(self, low: int, high: int) -> None:
        """Take all from ``low`` to ``high``. A range that would be one too many is not kept."""
        first = bisect.bisect_left(self.highs, low - 1)
        last = bisect.bisect_right(self.lows, high + 1)
        if first == last and len(self.lows) >= RANGES:
            return
        if first < last:
            low, high = min(low, self.lows[first]), max(high, self.highs[last - 1])
        self.lows[first:last] = [low]
        self.highs[first:last] = [high]


class Outboxes(Part):
    """The outbox of every device of this station, in memory and on disk."""

    name: ClassVar[str] = "outboxes"

    def __init__(self, *, reader: Reader, metrics: Metrics) -> None:
        self._reader = reader
        self._metrics = metrics
        self._of: dict[str, Taken] = {}
        self._taking: list[Message] = []

    async def open(self) -> None:
        """Load what was taken."""
        for device, outbox, taken in await self._reader.rows("SELECT device, outbox, taken FROM outboxes"):
            self._of[device] = Taken(outbox, decode_stored(taken))

    def hello(self, device: str, outbox: bytes, oldest: int) -> None:
        """A device tells its outbox, and below which sequence nothing will come any more."""
        if not outbox:
            return
        known = self._of.get(device)
        if known is None or known.outbox != outbox:
            if known is not None:
                self._metrics.add("device_outboxes_renewed")
            known = self._of[device] = Taken(outbox)
        if oldest > 1:
            known.take(1, oldest - 1)

    def knows(self, message: Message) -> bool:
        """Whether this message is on disk here."""
        known = self._of.get(message.device)
        return known is not None and known.outbox == message.outbox and message.sequence in known

    def taking(self, messages: Iterable[Message]) -> list[Statement]:
        """What puts these on disk as taken, in the same commit as what they say. ``taken`` is called after it."""
        copies: dict[str, Taken] = {}
        self._taking = []
        for message in messages:
            known = self._of.get(message.device)
            if not message.sequence or known is None or known.outbox != message.outbox:
                continue
            copy = copies.get(message.device)
            if copy is None:
                copy = copies[message.device] = Taken(known.outbox, known.ranges())
            copy.take(message.sequence, message.sequence)
            self._taking.append(message)
        if not copies:
            return []
        return [(_PUT, [(device, copy.outbox, encode_value(copy.ranges())) for device, copy in copies.items()])]

    def taken(self) -> None:
        """They are on disk."""
        for message in self._taking:
            known = self._of.get(message.device)
            if known is not None and known.outbox == message.outbox:
                known.take(message.sequence, message.sequence)
        self._taking = []
