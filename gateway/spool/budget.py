"""How many bytes of each class may wait, and what happens beyond that: events and telemetry give way, the rest refuses.

What is known here of how much waits is an estimate between two looks at the ledger; what gives way is counted by the
statements themselves, inside their transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from device_agent.errors import StationFailed
from gateway.spool import ledger
from gateway.spool.streams import CLASSES, GIVES_WAY, Class
from gateway.store.writer import Statement, StoreFailed

MEGABYTE = 1024 * 1024
KEPT_SHARE = 0.95
"""A class that gives way does so down to this share of its budget, so that it need not with each item after that."""

ITEM_LEAST_BYTES = 32
"""No event is smaller, with its tag, its stamp and its site."""

STEP_BYTES = ledger.CUT_ROWS * ITEM_LEAST_BYTES
"""So much gives way at once for certain, where there is so much too much."""


class SpoolFull(StoreFailed):
    """A class that never drops has used up its budget: nothing more is accepted of it until a master takes some."""

    default_id = "spool.full"


def refusal_reason(error: StationFailed) -> str:
    """The reason with which something is refused that could not be put on disk."""
    return "spool_full" if isinstance(error, SpoolFull) else "store_failed"


class Budget:
    """The budgets of the classes, in bytes."""

    def __init__(self, most: Mapping[Class, int] | None = None) -> None:
        self.most: dict[Class, int] = dict.fromkeys(CLASSES, 256 * MEGABYTE) | dict(most or {})
        self._waiting: Counter[Class] = Counter()

    def measured(self, waiting: Mapping[Class, int]) -> None:
        """So many bytes of each class wait."""
        self._waiting = Counter(waiting)

    def need_room(self, name: Class, size: int) -> None:
        """Refuse what would not fit. Raises ``SpoolFull``; never for a class that gives way."""
        if name not in GIVES_WAY and self._waiting[name] + size > self.most[name]:
            raise SpoolFull(
                f"the spool has no room for more {name}",
                where=f"spool.{name}_megabytes",
                found=f"{self._waiting[name]} bytes wait for a master",
                allowed=f"{self.most[name]} bytes",
                hint="bring the uplink back (outstation check), or raise the budget in the settings",
            )

    def used_up(self) -> list[Class]:
        """The classes of which nothing more is accepted."""
        return [
            name
            for name in CLASSES
            if name not in GIVES_WAY and self._waiting[name] + ITEM_LEAST_BYTES > self.most[name]
        ]

    def taking(self, name: Class, size: int) -> list[Statement]:
        """So many bytes are added: the statements that make the oldest give way, where there are too many now."""
        self._waiting[name] += size
        if name not in GIVES_WAY or self._waiting[name] <= self.most[name]:
            return []
        most = self.most[name]
        kept = max(int(most * KEPT_SHARE), most - STEP_BYTES)
        # What is too much by more than a step goes with what is added next.
        self._waiting[name] = max(kept, self._waiting[name] - STEP_BYTES)
        return ledger.giving_way(name, GIVES_WAY[name], most, kept)
