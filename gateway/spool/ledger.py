"""The ledger: of each class, accepted = delivered + pending + dropped by reason. It always adds up.

Every change of it is a statement that is committed with what it counts; reading it reads a few rows, whatever waits.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from gateway.spool.streams import CLASS_OF, CLASSES, Class, streams_of
from gateway.store.reader import Reader, StoreUnreadable
from gateway.store.writer import Statement
from upstream.frames import STREAMS, LedgerRow, Stream

_ACCEPTED = "UPDATE ledger SET accepted = accepted + ?, pending_bytes = pending_bytes + ? WHERE class = ?"
_CONFIRMED_BY = (
    "INSERT INTO confirmations (master, class, count) SELECT ?, ?, n FROM"
    " (SELECT count(*) AS n FROM spool_{stream} WHERE sequence <= ?) WHERE n > 0"
    " ON CONFLICT (master, class) DO UPDATE SET count = count + excluded.count"
)
_DELIVERED = (
    "UPDATE ledger SET delivered = delivered + (SELECT count(*) FROM spool_{stream} WHERE sequence <= ?),"
    " pending_bytes = pending_bytes - (SELECT coalesce(sum(length(body)), 0) FROM spool_{stream} WHERE sequence <= ?)"
    " WHERE class = ?"
)
_LET_GO = "DELETE FROM spool_{stream} WHERE sequence <= ?"
_UP_TO = "sequence <= ?"
_THESE = "sequence IN (SELECT value FROM json_each(?))"
_LOST = "UPDATE ledger SET accepted = accepted + ? WHERE class = ?"
_LOST_WHY = (
    "INSERT INTO drops (class, reason, count) VALUES (?, ?, ?)"
    " ON CONFLICT (class, reason) DO UPDATE SET count = count + excluded.count"
)
_COALESCED = (
    (
        "INSERT INTO drops (class, reason, count) SELECT 'events', 'coalesced', n FROM (SELECT count(*) AS n"
        " FROM spool_state WHERE key = ? AND sequence > ?) WHERE n > 0"
        " ON CONFLICT (class, reason) DO UPDATE SET count = count + excluded.count"
    ),
    (
        "UPDATE ledger SET pending_bytes = pending_bytes - (SELECT coalesce(sum(length(body)), 0) FROM spool_state"
        " WHERE key = ? AND sequence > ?) WHERE class = 'events'"
    ),
    "DELETE FROM spool_state WHERE key = ? AND sequence > ?",
)
_DROPPED = (
    (
        "INSERT INTO drops (class, reason, count) SELECT ?2, ?3, 1 FROM spool_{stream} WHERE sequence = ?1"
        " ON CONFLICT (class, reason) DO UPDATE SET count = count + excluded.count"
    ),
    (
        "UPDATE ledger SET pending_bytes = pending_bytes - (SELECT coalesce(sum(length(body)), 0) FROM spool_{stream}"
        " WHERE sequence = ?1) WHERE class = ?2"
    ),
    "DELETE FROM spool_{stream} WHERE sequence = ?1",
)
CUT_ROWS = 65_536
"""So many items of a stream give way at once: nobody waits for a transaction that looks at all that waits."""
_CUT = (
    (
        "UPDATE ledger SET cut = CASE WHEN pending_bytes > ?{before} THEN coalesce((SELECT max(sequence) FROM"
        " (SELECT sequence, sum(size) OVER (ORDER BY sequence) - size AS before FROM"
        " (SELECT sequence, length(body) AS size FROM spool_{stream} ORDER BY sequence LIMIT {rows}))"
        " WHERE before < ledger.pending_bytes - ?), 0) ELSE 0 END WHERE class = ?"
    ),
    (
        "INSERT INTO drops (class, reason, count) SELECT ledger.class, 'budget', (SELECT count(*) FROM spool_{stream}"
        " WHERE sequence <= ledger.cut) FROM ledger WHERE class = ? AND cut > 0"
        " ON CONFLICT (class, reason) DO UPDATE SET count = count + excluded.count"
    ),
    (
        "UPDATE ledger SET pending_bytes = pending_bytes - (SELECT coalesce(sum(length(body)), 0) FROM spool_{stream}"
        " WHERE sequence <= ledger.cut) WHERE class = ?"
    ),
    "DELETE FROM spool_{stream} WHERE sequence <= (SELECT cut FROM ledger WHERE class = ?)",
)


@dataclass(frozen=True)
class Entry:
    """One class of the ledger."""

    name: Class
    accepted: int
    delivered: int
    pending: int
    pending_bytes: int
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Recount:
    """What the ledger says is pending of a class, and what the rows themselves say."""

    name: Class
    pending: int
    pending_bytes: int
    rows: int
    rows_bytes: int

    @property
    def equal(self) -> bool:
        """Whether the ledger is right."""
        return (self.pending, self.pending_bytes) == (self.rows, self.rows_bytes)


def accepted(name: Class, count: int, size: int) -> Statement:
    """So many items of so many bytes are added."""
    return (_ACCEPTED, [(count, size, name)])


def delivered(stream: Stream, sequence: int, master: str) -> list[Statement]:
    """A master has everything up to this sequence: it is counted and let go."""
    name = CLASS_OF[stream]
    return [
        (_CONFIRMED_BY.format(stream=stream), [(master, name, sequence)]),
        (_DELIVERED.format(stream=stream), [(sequence, sequence, name)]),
        (_LET_GO.format(stream=stream), [(sequence,)]),
    ]


def delivered_items(stream: Stream, sequences: Sequence[int], master: str) -> list[Statement]:
    """A master has these items of a stream, whatever lies between them: each that is still here is counted, and let go.

    For masters that confirm single items.
    """
    name, these = CLASS_OF[stream], json.dumps(list(sequences))
    return [
        (_CONFIRMED_BY.format(stream=stream).replace(_UP_TO, _THESE), [(master, name, these)]),
        (_DELIVERED.format(stream=stream).replace(_UP_TO, _THESE), [(these, these, name)]),
        (_LET_GO.format(stream=stream).replace(_UP_TO, _THESE), [(these,)]),
    ]


def lost(name: Class, reason: str, count: int) -> list[Statement]:
    """So many items were accepted and never came into the spool."""
    return [(_LOST, [(count, name)]), (_LOST_WHY, [(name, reason, count)])]


def dropped(stream: Stream, sequence: int, reason: str) -> list[Statement]:
    """One item that waits is let go for this reason."""
    name = CLASS_OF[stream]
    counted, freed, gone = (statement.format(stream=stream) for statement in _DROPPED)
    return [(counted, [(sequence, name, reason)]), (freed, [(sequence, name)]), (gone, [(sequence,)])]


def coalescing(key: str, after: int) -> list[Statement]:
    """What waits under this key, and was not handed to a link yet, gives way to what is added next."""
    return [(statement, [(key, after)]) for statement in _COALESCED]


def giving_way(name: Class, streams: Iterable[Stream], most: int, to_bytes: int) -> list[Statement]:
    """If the class has more than ``most`` bytes, the oldest items of these streams give way until it has ``to_bytes``.

    One stream after another: none while something is left of those before it. At most ``CUT_ROWS`` go at once.
    """
    statements: list[Statement] = []
    before = ""
    for stream in streams:
        cut, *drop = (statement.format(stream=stream, before=before, rows=CUT_ROWS) for statement in _CUT)
        statements += [(cut, [(most, to_bytes, name)]), *((statement, [(name,)]) for statement in drop)]
        before += f" AND NOT EXISTS (SELECT 1 FROM spool_{stream})"  # noqa: S608 - the names of this program
    return statements


async def entries(reader: Reader) -> list[Entry]:
    """The whole ledger, from its counters alone. Raises ``StoreUnreadable``."""
    rows = await reader.rows(
        "SELECT class, '', accepted, delivered, pending_bytes FROM ledger"
        " UNION ALL SELECT class, reason, count, 0, 0 FROM drops"
    )
    return _entries(rows)


def _entries(rows: Sequence[tuple[Class, str, int, int, int]]) -> list[Entry]:
    dropped: dict[str, dict[str, int]] = {name: {} for name in CLASSES}
    counters = {name: (taken, gone, size) for name, reason, taken, gone, size in rows if not reason}
    for name, reason, count, _, _ in rows:
        if reason:
            dropped[name][reason] = count
    found = []
    for name in CLASSES:
        taken, gone, size = counters.get(name, (0, 0, 0))
        pending = taken - gone - sum(dropped[name].values())
        found.append(Entry(name, taken, gone, pending, size, dropped[name]))
    return found


async def report(reader: Reader, master: str) -> list[LedgerRow]:
    """The ledger as one master is told it, with how much of it that master has confirmed."""
    confirmed = dict(await reader.rows("SELECT class, count FROM confirmations WHERE master = ?", (master,)))
    return [
        LedgerRow(
            name=entry.name,
            accepted=entry.accepted,
            delivered=entry.delivered,
            pending=entry.pending,
            pending_bytes=entry.pending_bytes,
            dropped=entry.dropped,
            confirmed=confirmed.get(entry.name, 0),
        )
        for entry in await entries(reader)
    ]


async def recount(path: Path) -> list[Recount]:
    """Count the rows themselves, in one view of the file. Raises ``StoreUnreadable``. Takes as long as there are rows.

    On a connection of its own: the station's reads do not wait for it.
    """
    try:
        return await asyncio.to_thread(_recount, path)
    except sqlite3.Error as error:
        raise StoreUnreadable("the spool could not be counted", where=str(path), found=str(error)) from None


def _recount(path: Path) -> list[Recount]:
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("BEGIN")
        said = _entries(
            connection.execute(
                "SELECT class, '', accepted, delivered, pending_bytes FROM ledger"
                " UNION ALL SELECT class, reason, count, 0, 0 FROM drops"
            ).fetchall()
        )
        found: dict[Stream, tuple[int, int]] = {}
        for stream in STREAMS:
            # The name is one of the six that are written in this program.
            (row,) = connection.execute(
                f"SELECT count(*), coalesce(sum(length(body)), 0) FROM spool_{stream}"  # noqa: S608 - see above
            ).fetchall()
            found[stream] = (row[0], row[1])
    finally:
        connection.close()
    return [
        Recount(
            entry.name,
            entry.pending,
            entry.pending_bytes,
            sum(found[stream][0] for stream in streams_of(entry.name)),
            sum(found[stream][1] for stream in streams_of(entry.name)),
        )
        for entry in said
    ]
