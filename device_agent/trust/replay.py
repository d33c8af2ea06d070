"""Each job is taken once: the latest job numbers of each signer, and a mark at or below which nothing is taken.

The mark goes to flash before a job runs; after a restart it is the highest number that was written. Late older jobs are
then lost, which is the safe side: the station asks for a new seal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection
from typing import Final

from device_agent.errors import Refused

WINDOW: Final = 256
ISSUERS: Final = 64
MARK_AHEAD_MILLISECONDS: Final = 86_400_000
"""How far ahead of the wall clock a device's mark may move a station's numbers."""

SEQ_MAX: Final = 2**64 - 1


class Replay:
    """What a device remembers of job numbers, bounded for each signer and in the number of signers."""

    __slots__ = ("_low", "_seen")

    def __init__(self) -> None:
        self._low: dict[bytes, int] = {}
        self._seen: dict[bytes, list[int]] = {}

    def check(self, kid: bytes, seq: int) -> None:
        """Raises ``Refused``: ``replayed``, ``stale_seq`` (at or below the mark), ``too_many_issuers``."""
        if kid not in self._low:
            if len(self._low) >= ISSUERS:
                raise Refused(
                    "too_many_issuers", f"{ISSUERS} are remembered; forgetting one would let its jobs in again"
                )
            return
        seen = self._seen[kid]
        place = bisect_left(seen, seq)
        if place < len(seen) and seen[place] == seq:
            raise Refused("replayed", str(seq))
        if seq <= self._low[kid]:
            raise Refused("stale_seq", f"{seq}, taken is above {self._low[kid]}")

    def note(self, kid: bytes, seq: int) -> None:
        """Remember a job that is taken. Raises ``Refused`` as ``check`` does; nothing changes then."""
        self.check(kid, seq)
        self._low.setdefault(kid, -1)
        seen = self._seen.setdefault(kid, [])
        insort(seen, seq)
        if len(seen) > WINDOW:
            self._low[kid] = seen.pop(0)

    def raise_to(self, kid: bytes, low: int) -> None:
        """Take nothing of this signer at or below a number; a mark never sinks."""
        if kid not in self._low and len(self._low) >= ISSUERS:
            raise Refused("too_many_issuers", f"{ISSUERS} are remembered")
        self._low[kid] = max(self._low.get(kid, -1), low)
        seen = self._seen.setdefault(kid, [])
        del seen[: bisect_right(seen, self._low[kid])]

    def keep(self, kids: Collection[bytes]) -> None:
        """Forget signers that count no more: nothing of theirs is taken anyway."""
        for kid in [kid for kid in self._low if kid not in kids]:
            del self._low[kid], self._seen[kid]

    def highest(self, kid: bytes) -> int:
        """The highest number taken of a signer; -1 without one."""
        seen = self._seen.get(kid)
        return seen[-1] if seen else self._low.get(kid, -1)

    def marks(self) -> list[tuple[bytes, int]]:
        """For each signer the number above which everything is new here."""
        return [(kid, self.highest(kid)) for kid in self._low if self.highest(kid) >= 0]


def next_seq(last: int, wall: float) -> int:
    """The number of a signer's next job. A database that was restored cannot repeat one, as long as time goes on."""
    return max(last + 1, int(wall * 1000))


def raised_by_mark(last: int, mark: int, wall: float) -> int:
    """A station's last number, raised to what a device has seen of it. A mark far ahead of time is a lie: one device
    must not push a station's numbers out of every other device's reach.
    """
    return max(last, mark) if mark <= wall * 1000 + MARK_AHEAD_MILLISECONDS else last
