"""Copies what can be read of a damaged SQLite file into a fresh one, table by table, in bounded memory.

A table is read by its key, upward until something cannot be read, then downward from the end, and the gap between the
two is halved again and again: breadth first, so that the largest readable pieces come first when there are more
unreadable places than may be tried. Indexes of the damaged file are not used; the fresh file has its own.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from gateway.store.damage import TableFound, is_damage

PROBES: Final = 20_000
"""Places tried in one table before the rest of its gaps is given up."""

KEY_BYTES: Final = 24
"""How many bytes of a key are halved."""

SEQUENCES: Final = "sqlite_sequence"
LOWEST, HIGHEST = -(2**63), 2**63 - 1
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "INTEGER": (int, float),
    "REAL": (int, float),
    "TEXT": (str,),
    "BLOB": (bytes, str),
}
UNREADABLE = (sqlite3.Error, UnicodeError, OverflowError)

Key = tuple[Any, ...]


@dataclass
class Table:
    """A table to copy: its columns, and what its rows are ordered by."""

    name: str
    columns: list[str]
    kinds: tuple[tuple[type, ...], ...]
    key: list[str]
    key_kinds: list[str]
    seeded: bool
    found: int = 0
    unreadable: int = 0

    @property
    def by_rowid(self) -> bool:
        """Whether it is ordered by SQLite's own number of a row."""
        return self.key == ["rowid"]


def tables_of(old: sqlite3.Connection, fresh: sqlite3.Connection) -> list[Table]:
    """The tables that both files have, with the columns that both have."""
    there = {name for (name,) in old.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    found = []
    for name, sql in fresh.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY rowid"
    ).fetchall():
        if name not in there or name.startswith("sqlite_"):
            continue
        known = {row[1] for row in old.execute("SELECT * FROM pragma_table_info(?)", (name,))}
        columns = [row for row in fresh.execute("SELECT * FROM pragma_table_info(?)", (name,)) if row[1] in known]
        parts = sorted((row[5], row[1], row[2].upper()) for row in columns if row[5])
        key, key_kinds = [f'"{part[1]}"' for part in parts], [part[2] for part in parts]
        if "WITHOUT ROWID" not in sql.upper():
            if key_kinds == ["INTEGER"]:
                # Another name of the rowid.
                columns = [row for row in columns if not row[5]]
            key, key_kinds = ["rowid"], ["INTEGER"]
        nothing = type(None)
        table = Table(
            name=name,
            columns=[f'"{row[1]}"' for row in columns],
            kinds=tuple(
                (*_KINDS.get(row[2].upper(), (object,)), *(() if row[3] or row[5] else (nothing,))) for row in columns
            ),
            key=key,
            key_kinds=key_kinds,
            seeded=bool(fresh.execute(f'SELECT EXISTS (SELECT 1 FROM "{name}")').fetchone()[0]),  # noqa: S608 - our schema
        )
        found.append(table)
    return found


def copy(old: sqlite3.Connection, fresh: sqlite3.Connection) -> dict[str, TableFound]:
    """Copy every table; what was found of each. The caller commits."""
    found = {}
    for table in tables_of(old, fresh):
        _Copier(old, fresh, table).run()
        found[table.name] = TableFound(table.found, table.unreadable)
    # After the tables, whose rows would raise it again: a number given out once is not given out again.
    found[SEQUENCES] = keep_sequences(old, fresh)
    return found


def keep_sequences(old: sqlite3.Connection, fresh: sqlite3.Connection) -> TableFound:
    """Numbers that the old file had given out."""
    try:
        rows = [row for row in old.execute(f"SELECT name, seq FROM {SEQUENCES}") if isinstance(row[1], int)]  # noqa: S608 - SQLite's own
    except UNREADABLE:
        return TableFound(0, 1)
    for name, sequence in rows:
        raise_sequence(fresh, name, sequence)
    return TableFound(len(rows))


def raise_sequence(fresh: sqlite3.Connection, name: str, sequence: int) -> None:
    """The next number of a table is above this one."""
    changed = fresh.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (sequence, name)).rowcount
    if not changed:
        fresh.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, sequence))


class _Copier:
    """Copies one table."""

    def __init__(self, old: sqlite3.Connection, fresh: sqlite3.Connection, table: Table) -> None:
        self._old, self._fresh, self._table = old, fresh, table
        verb = "REPLACE" if table.seeded else "IGNORE"
        names = [*(["rowid"] if table.by_rowid else []), *table.columns]
        marks = ", ".join("?" for _ in names)
        self._put = f'INSERT OR {verb} INTO "{table.name}" ({", ".join(names)}) VALUES ({marks})'  # noqa: S608 - our schema
        self._picked = ", ".join([*table.key, *table.columns])
        self._last: Key | None = None
        self._probes = 0

    def run(self) -> None:
        """Read from both ends, then halve what lies between."""
        done, low = self._read("up", None, None)
        if done:
            return
        done, high = self._read("down", low, None)
        if done:
            return
        lost: list[tuple[Key, Key]] = []
        lowest, highest = _ends(self._table.key_kinds[0])
        gaps: deque[tuple[Key, Key]] = deque([(low or (lowest,), high or (highest,))])
        while gaps:
            low, high = gaps.popleft()
            middle = _middle(low, high, self._table.key_kinds) if self._probes < PROBES else None
            if middle is None:
                lost.append((low, high))
                continue
            # Reading stopped just above ``low`` and just below ``high``, so both halves are read from the middle.
            done, below = self._read("down", low, middle, with_high=True)
            if not done:
                gaps.append((low, below or middle))
            done, above = self._read("up", middle, high)
            if not done:
                gaps.append((above or middle, high))
        self._table.unreadable += _places(lost)

    def _read(
        self, way: Literal["up", "down"], low: Key | None, high: Key | None, *, with_high: bool = False
    ) -> tuple[bool, Key | None]:
        """Copy rows between two keys; whether all could be read, and the key of the last one that was."""
        self._probes += 1
        self._last = None
        before = self._fresh.total_changes
        try:
            self._fresh.executemany(self._put, self._rows(way, low, high, with_high))
        except UNREADABLE as error:
            code = getattr(error, "sqlite_errorcode", 0)
            if code & 0xFF in _OURS and not is_damage(error):
                raise
            return False, self._last
        finally:
            self._table.found += self._fresh.total_changes - before
        return True, self._last

    def _rows(self, way: str, low: Key | None, high: Key | None, with_high: bool) -> Iterator[Key]:
        table, width, kinds = self._table, len(self._table.key), self._table.kinds
        drop = 0 if table.by_rowid else width
        bounds, values = [], []
        for sign, key in ((">", low), ("<=" if with_high else "<", high)):
            if key is not None:
                columns, marks = table.key[: len(key)], [_mark(value) for value in key]
                bounds.append(f"({', '.join(columns)}) {sign} ({', '.join(marks)})")
                values += [value.text if isinstance(value, _Text) else value for value in key]
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        order = ", ".join(f"{column} {'DESC' if way == 'down' else 'ASC'}" for column in table.key)
        sql = f'SELECT {self._picked} FROM "{table.name}" NOT INDEXED{where} ORDER BY {order}'  # noqa: S608 - our schema
        for row in self._old.execute(sql, values):
            self._last = row[:width]
            if all(map(isinstance, row[width:], kinds)):
                yield row[drop:]
            else:
                table.unreadable += 1


_OURS: Final = frozenset({8, 10, 13, 14})
"""SQLITE_READONLY, _IOERR, _FULL and _CANTOPEN: it is the fresh file that cannot be written."""


@dataclass(frozen=True)
class _Text:
    """A text between two others, as bytes: it need not be one that anybody writes."""

    text: bytes


def _mark(value: Any) -> str:
    return "CAST(? AS TEXT)" if isinstance(value, _Text) else "?"


def _ends(kind: str) -> tuple[Any, Any]:
    """Below and above every value of a column."""
    match kind:
        case "INTEGER":
            return LOWEST, HIGHEST
        case "TEXT":
            return _Text(b""), _Text(b"\xff" * KEY_BYTES)
        case _:
            return b"", b"\xff" * KEY_BYTES


def _middle(low: Key, high: Key, kinds: list[str]) -> Key | None:
    """A key between two others; None when there is none, or none can be made."""
    place = next((place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), None)
    if place is None:
        return None
    first, last = _number(low[place]), _number(high[place])
    if last - first < 2:
        return None
    between = (first + last) // 2
    if kinds[place] == "INTEGER":
        return (*low[:place], between)
    made = between.to_bytes(KEY_BYTES, "big").rstrip(b"\0")
    return (*low[:place], _Text(made) if kinds[place] == "TEXT" else made)


def _number(value: Any) -> int:
    match value:
        case int() | float():
            return int(value)
        case _Text(text=text):
            plain = text
        case str():
            plain = value.encode()
        case bytes():
            plain = value
        case _:
            return 0
    return int.from_bytes(plain[:KEY_BYTES].ljust(KEY_BYTES, b"\0"), "big")


def _places(lost: list[tuple[Key, Key]]) -> int:
    """How many places these gaps are, when those that touch are one."""
    found, end = 0, None
    for low, high in sorted(
        ([_number(value) for value in low], [_number(value) for value in high]) for low, high in lost
    ):
        if end is None or low > end:
            found += 1
        end = high if end is None else max(end, high)
    return found
