"""Makes a salvaged store true to itself: the ledger counts what is missing, and no number is given out twice."""

from __future__ import annotations

import secrets
import sqlite3
from typing import Final

from gateway.store import salvage
from gateway.store.damage import Damage

STREAMS: Final = {
    "returns": ("spool_returns",),
    "events": ("spool_urgent", "spool_state", "spool_events"),
    "audit": ("spool_audit",),
    "telemetry": ("spool_telemetry",),
}
"""The spool's tables, by the class of the ledger that counts their rows."""

JUMP: Final = 2**20
"""Far more numbers than can have been given out since the newest that was found."""

REASON: Final = "damage"


def reckon(fresh: sqlite3.Connection, damage: Damage) -> None:
    """Count what is missing, and go on above every number that was given out. The caller commits."""
    there = {name for (name,) in fresh.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table in ("spool", *(table for tables in STREAMS.values() for table in tables)):
        if table in there:
            (top,) = fresh.execute(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?", (table,)
            ).fetchone()
            if top:
                salvage.raise_sequence(fresh, table, top + JUMP)
    if "ledger" in there:
        for name, tables in STREAMS.items():
            missing = _reckon_class(fresh, name, tables)
            if missing:
                damage.missing[name] = missing
    numbering = ("station", "marks", salvage.SEQUENCES)
    if damage.log_lost or any(name not in damage.tables or damage.tables[name].unreadable for name in numbering):
        # What was given out last is not known: numbers are only comparable under a name, so there is another one.
        fresh.execute("INSERT OR REPLACE INTO station VALUES ('epoch', ?)", (secrets.token_hex(8),))
        # Masters hold who says too few marks for a copy, and who says none under a new name for another store.
        fresh.execute("DELETE FROM marks")
        damage.epoch_renewed = True


def _reckon_class(fresh: sqlite3.Connection, name: str, tables: tuple[str, ...]) -> int:
    """Make one class of the ledger add up; how many items are missing."""
    rows = size = 0
    for table in tables:
        count, length = fresh.execute(f"SELECT count(*), coalesce(sum(length(body)), 0) FROM {table}").fetchone()  # noqa: S608 - one of STREAMS
        rows, size = rows + count, size + length
    fresh.execute("INSERT OR IGNORE INTO ledger (class) VALUES (?)", (name,))
    accepted, delivered = fresh.execute("SELECT accepted, delivered FROM ledger WHERE class = ?", (name,)).fetchone()
    (dropped,) = fresh.execute("SELECT coalesce(sum(count), 0) FROM drops WHERE class = ?", (name,)).fetchone()
    missing = int(accepted - delivered - dropped - rows)
    if missing > 0:
        fresh.execute(
            "INSERT INTO drops (class, reason, count) VALUES (?, ?, ?)"
            " ON CONFLICT (class, reason) DO UPDATE SET count = count + excluded.count",
            (name, REASON, missing),
        )
    # Fewer than were found: the ledger itself is what lost something.
    fresh.execute(
        "UPDATE ledger SET accepted = ?, pending_bytes = ? WHERE class = ?",
        (accepted + max(0, -missing), size, name),
    )
    return max(0, missing)
