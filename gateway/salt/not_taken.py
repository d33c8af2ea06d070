"""Which item of a stream a Salt master does not take: the message around it is halved until it stands alone. Pure.

An item that stands alone and is not confirmed again and again says nothing of itself while the master confirms nothing
else either, as with a full disk: whoever is to let go of it tells the master something else of its kind first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gateway.salt.pace import CHUNK
from upstream.frames import Stream

NOT_TAKEN: Final = "not_taken"
"""Why an item is dropped, in the ledger, and what the master is told of it."""

TRIES: Final = 3
"""How often an item is told alone before it is asked whether the master takes anything."""

REMEMBERED: Final = 8192
"""Items of messages that were not confirmed."""


class NotTaken:
    """In how large a message each item may be told, and how often one was not confirmed alone."""

    def __init__(self) -> None:
        self._most: OrderedDict[tuple[Stream, int], int] = OrderedDict()
        self._tries: OrderedDict[tuple[str, Stream, int], int] = OrderedDict()
        self._odd_jobs: OrderedDict[tuple[str, str], None] = OrderedDict()

    def most(self, stream: Stream, sequence: int) -> int:
        """How many items a message may have that this one is in."""
        return self._most.get((stream, sequence), CHUNK)

    def fit(self, stream: Stream, sequences: Sequence[int]) -> int:
        """How many of these items, from the first on, go into one message."""
        room = CHUNK
        for count, sequence in enumerate(sequences):
            room = min(room, self.most(stream, sequence))
            if count >= room:
                return count
        return len(sequences)

    def gone(self, stream: Stream, sequences: Sequence[int]) -> None:
        """These items wait no longer."""
        for sequence in sequences:
            self._most.pop((stream, sequence), None)

    def refused(self, master: str, stream: Stream, sequences: Sequence[int]) -> bool:
        """A message of these items was not confirmed; whether it is time to doubt the one that stood alone."""
        for sequence in sequences:
            self._most[stream, sequence] = max(1, len(sequences) // 2)
        while len(self._most) > REMEMBERED:
            self._most.popitem(last=False)
        if len(sequences) > 1:
            return False
        alone = (master, stream, sequences[0])
        self._tries[alone] = self._tries.pop(alone, 0) + 1
        while len(self._tries) > REMEMBERED:
            self._tries.popitem(last=False)
        return self._tries[alone] >= TRIES

    def odd_job(self, master: str, jid: str) -> None:
        """The master takes answers to this job with a plain definition of it alone."""
        self._odd_jobs[master, jid] = None
        while len(self._odd_jobs) > REMEMBERED:
            self._odd_jobs.popitem(last=False)

    def is_odd_job(self, master: str, jid: str) -> bool:
        """Whether that was found of this job."""
        return (master, jid) in self._odd_jobs
