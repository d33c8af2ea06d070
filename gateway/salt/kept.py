"""How much is kept of what each Salt master ordered, and what gives way when it is too much.

Only what every device has answered, and a master has confirmed, gives way, the oldest first. The highest jid that did
is kept as a mark for each master, and nothing up to it is taken: nobody could tell it from a repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

ROWS: Final = 20_000
BYTES: Final = 64 * 2**20
"""Most orders, and most of their definitions and devices together, of one master."""

DOWN_TO: Final = 7 / 8
"""How much of it is left when something gives way, so that this is seldom."""

FRESH_SECONDS: Final = 600.0
"""An order that is no older stays: others of its time may still be on their way."""

ROW_BYTES: Final = 200
"""Of an order beside its definition and its devices."""

_ADD = "INSERT INTO salt_kept (jid, told_as, master, size, waits, taken) VALUES (?, ?, ?, ?, ?, ?)"
_TOLD = "UPDATE salt_kept SET waits = waits - ? WHERE jid = ?"
_GONE = "SELECT jid, told_as, size FROM salt_kept WHERE master = ? AND waits <= 0 AND taken < ? ORDER BY jid"
_MARK = (
    "INSERT INTO salt_marks (master, jid) VALUES (?, ?) ON CONFLICT (master) DO UPDATE SET jid = max(jid, excluded.jid)"
)


class KeptOrders:
    """The tables ``salt_kept`` and ``salt_marks``."""

    def __init__(self, writer: Writer, reader: Reader, *, rows: int = ROWS, most_bytes: int = BYTES) -> None:
        self._writer = writer
        self._reader = reader
        self._rows = rows
        self._bytes = most_bytes
        self._kept: dict[str, tuple[int, int]] = {}

    def adding(self, jid: str, told_as: str, master: str, size: int, waits: int, now: float) -> Statement:
        """The statement that keeps in mind how much an order takes, and how many answers it waits for."""
        if (known := self._kept.get(master)) is not None:
            # Too much where the commit fails; counted anew before anything is refused.
            self._kept[master] = (known[0] + 1, known[1] + size + ROW_BYTES)
        return (_ADD, [(jid, told_as, master, size + ROW_BYTES, waits, now)])

    @staticmethod
    def told(answers: Mapping[str, int]) -> Statement:
        """The statement that says that a master has confirmed so many answers of each job."""
        return (_TOLD, [(count, jid) for jid, count in answers.items()])

    async def room(self, master: str, size: int, now: float) -> bool:
        """Whether there is room for one more order of this master; older ones give way for it.

        Raises ``StationFailed``.
        """
        if master in self._kept and self._fits(master, size):
            return True
        await self._count(master)
        if self._fits(master, size):
            return True
        await self._let_go(master, size, now)
        return self._fits(master, size)

    async def gave_way(self, jid: str, master: str) -> bool:
        """Whether nobody could say any more that this jid was not taken. Raises ``StoreUnreadable``."""
        rows = await self._reader.rows("SELECT 1 FROM salt_marks WHERE master = ? AND jid >= ?", (master, jid))
        return bool(rows)

    @staticmethod
    def pruned() -> Statement:
        """The statement that forgets what is not in ``salt_jobs`` any more."""
        return ("DELETE FROM salt_kept WHERE jid NOT IN (SELECT jid FROM salt_jobs) AND 1 = ?", [(1,)])

    def forget_counts(self) -> None:
        """Rows were taken away: count anew."""
        self._kept.clear()

    def _fits(self, master: str, size: int) -> bool:
        rows, total = self._kept[master]
        return rows < self._rows and total + size + ROW_BYTES <= self._bytes

    async def _count(self, master: str) -> None:
        ((rows, total),) = await self._reader.rows(
            "SELECT count(*), coalesce(sum(size), 0) FROM salt_kept WHERE master = ?", (master,)
        )
        self._kept[master] = (int(rows), int(total))

    async def _let_go(self, master: str, need: int, now: float) -> None:
        rows, total = self._kept[master]
        gone: list[tuple[str]] = []
        mark = ""
        for jid, told_as, size in await self._reader.rows(_GONE, (master, now - FRESH_SECONDS)):
            if rows < self._rows * DOWN_TO and total + need <= self._bytes * DOWN_TO:
                break
            rows, total = rows - 1, total - size
            gone.append((jid,))
            mark = max(mark, told_as or jid)
        if not gone:
            return
        await self._writer.commit(
            [
                (_MARK, [(master, mark)]),
                ("DELETE FROM salt_jobs WHERE jid = ?", gone),
                ("DELETE FROM salt_kept WHERE jid = ?", gone),
            ]
        )
        self._kept[master] = (rows, total)
