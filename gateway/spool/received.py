"""What a station took of each site, class by class, beside what the site's own ledger says of it.

A site counts what each master has confirmed, a master counts what it took: what is confirmed is at most what was taken,
or something was lost above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from device_agent.protocol.messages import decode_stored, encode_value
from gateway.spool.streams import CLASS_OF
from gateway.store.reader import Reader
from gateway.store.writer import Statement
from upstream.frames import LedgerRow, Stream

_RECEIVED = (
    "INSERT INTO site_received (site, class, received, refused) VALUES (?, ?, ?, ?) ON CONFLICT (site, class)"
    " DO UPDATE SET received = received + excluded.received, refused = refused + excluded.refused"
)
_LEDGER = (
    "INSERT INTO site_ledgers (site, body, at) VALUES (?, ?, ?)"
    " ON CONFLICT (site) DO UPDATE SET body = excluded.body, at = excluded.at"
)


def received(site: str, stream: Stream, count: int, refused: int) -> Statement:
    """So many items came, of which so many were not acceptable."""
    return (_RECEIVED, [(site, CLASS_OF[stream], count, refused)])


def told(site: str, rows: Sequence[LedgerRow], now: float) -> Statement:
    """What a site says of its ledger."""
    return (_LEDGER, [(site, encode_value([msgspec.structs.asdict(row) for row in rows]), now)])


class SiteLedgers:
    """The ledgers of the sites below, each beside what is held here."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def views(self) -> list[dict[str, Any]]:
        """Each site that told its ledger: its classes, with ``received`` and ``refused`` here, and what is amiss."""
        held: dict[tuple[str, str], tuple[int, int]] = {
            (site, name): (count, refused)
            for site, name, count, refused in await self._reader.rows(
                "SELECT site, class, received, refused FROM site_received"
            )
        }
        return [
            {
                "site": site,
                "at": at,
                "classes": [_class_view(row, held.get((site, row["name"]), (0, 0))) for row in rows],
            }
            for site, rows, at in [
                (site, decode_stored(body), at)
                for site, body, at in await self._reader.rows("SELECT site, body, at FROM site_ledgers ORDER BY site")
            ]
        ]


def _class_view(row: dict[str, Any], held: tuple[int, int]) -> dict[str, Any]:
    came, refused = held
    return {
        "class": row["name"],
        **{name: row[name] for name in ("accepted", "delivered", "pending", "pending_bytes", "dropped", "confirmed")},
        "received": came,
        "refused": refused,
        "missing": max(0, row["confirmed"] - came),
    }
