"""How far each key of each Salt master was heard, on disk."""

from __future__ import annotations

from typing import Final

from device_agent.clock import Clock
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

KEYS: Final = 64
"""Most that are kept of a master: it makes a new one when it starts, and never has an old one again."""

_KEEP: Final = (
    "INSERT INTO salt_serials (key, master, serial, at) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
    " SET master = excluded.master, serial = max(serial, excluded.serial), at = excluded.at"
)
_LET_GO: Final = (
    "DELETE FROM salt_serials WHERE master = ? AND key NOT IN"
    " (SELECT key FROM salt_serials WHERE master = ? ORDER BY at DESC LIMIT ?)"
)


class SaltSerials:
    """Implements ``upstream.salt.serials.KeptSerials`` in the table ``salt_serials``."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._newest: dict[str, str] = {}

    async def last(self, key: str) -> int | None:
        """The last serial that was taken under a key. Raises ``StoreUnreadable``."""
        rows = await self._reader.rows("SELECT serial FROM salt_serials WHERE key = ?", (key,))
        return int(rows[0][0]) if rows else None

    async def keep(self, key: str, serial: int, master: str) -> None:
        """Return when it is on disk. Raises ``StoreFailed``."""
        statements: list[Statement] = [(_KEEP, [(key, master, serial, self._clock.wall())])]
        if self._newest.get(master) != key:
            statements.append((_LET_GO, [(master, master, KEYS)]))
        await self._writer.commit(statements)
        self._newest[master] = key
