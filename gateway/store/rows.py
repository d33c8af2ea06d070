"""Many rows with one statement, where that means the same as one statement for each row.

Each statement costs a hand-over of Python's lock and a start of SQLite's machine, which is more than a small row costs.
No trigger and no foreign key is in the schema (a test says so), so a statement touches the table that it names.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Row]]
"""SQL and the rows to run it with."""

ROWS: Final = (128, 16)
"""How many rows one statement takes; few different numbers, so that SQLite's own cache has them prepared."""

VARIABLES: Final = 32_000
"""Below what SQLite takes in one statement, whoever compiled it (32,766)."""

_NAME = r'(?:\w+|"\w+")'
_PLAIN = re.compile(
    rf"\s*INSERT(?: OR (?:ABORT|FAIL|IGNORE|REPLACE|ROLLBACK))? INTO {_NAME}"
    rf" ?\({_NAME}(?:, ?{_NAME})*\) VALUES (?P<values>\(\?(?:, ?\?)*\))\s*",
    re.ASCII,
)
"""Exactly this: what has a default, an expression or a tail (ON CONFLICT, RETURNING) goes row by row, as it was."""

_ADDING = re.compile(
    rf"UPDATE {_NAME} SET (?P<first>{_NAME}) = (?P=first) \+ \?"  # noqa: S608 - a pattern, no statement
    rf"(?P<others>(?:, {_NAME} = {_NAME} \+ \?)*) WHERE {_NAME} = \?",
    re.ASCII,
)
"""Counters that grow: adding one number after another is adding their sum."""
_OTHER = re.compile(rf", (?P<column>{_NAME}) = (?P<same>{_NAME}) \+ \?", re.ASCII)

_HEAD = re.compile(
    r"\s*(?:INSERT(?: OR \w+)? INTO|UPDATE(?: OR (?:ABORT|FAIL|IGNORE|REPLACE|ROLLBACK))?|DELETE FROM)"
    r' +(?P<table>\w+|"\w+")(?P<rest>(?:[\s(].*)?)',
    re.ASCII | re.DOTALL,
)
_LOOKS_ELSEWHERE = re.compile(
    r"\b(?:SELECT|FROM|IN|changes|total_changes|last_insert_rowid|RETURNING)\b|;", re.IGNORECASE
)


def joined(units: Sequence[Sequence[Statement]]) -> list[tuple[str, list[Row]]]:
    """The statements of all units in an order that means the same, those with the same SQL joined where it can be.

    For each table the order stays; statements that each touch one table, and not the same, change places. Whatever
    looks at other tables, or is not understood here, stays between what came before it and what comes after.
    """
    groups: list[tuple[str, list[Row]]] = []
    last: dict[str, tuple[str, list[Row]]] = {}
    before: list[tuple[str, list[Row]]] = []
    for unit in units:
        # Most units are of the kind of the one before, and then each of their statements has its group.
        if len(unit) == len(before) and all(one[0] is other[0] for one, other in zip(unit, before, strict=True)):
            for (_, rows), (_, group_rows) in zip(unit, before, strict=True):
                group_rows.extend(rows)
            continue
        for sql, rows in unit:
            if not rows:
                continue
            table = _table(sql)
            if table is None:
                last = {}
                groups.append((sql, list(rows)))
                continue
            group = last.get(table)
            if group is None or group[0] != sql:
                group = last[table] = (sql, [])
                groups.append(group)
            group[1].extend(rows)
        tables = {_table(sql) for sql, _ in unit}
        simple = len(tables) == len(unit) and None not in tables and all(rows for _, rows in unit)
        before = [last[table] for table in map(_table, (sql for sql, _ in unit)) if table] if simple else []
    return groups


def run(connection: sqlite3.Connection, sql: str, rows: Sequence[Row]) -> None:
    """Run a statement for each row, in their order."""
    if len(rows) == 1:
        connection.execute(sql, rows[0])
        return
    if _adds(sql):
        rows = _summed(rows)
    done = 0
    for number, width, many in _sizes(sql) if len(rows) >= ROWS[-1] else ():
        # A row that is too short and one that is too long would make up for each other.
        if not done and set(map(len, rows)) != {width}:
            break
        while len(rows) - done >= number:
            connection.execute(many, tuple(chain.from_iterable(rows[done : done + number])))
            done += number
    if done < len(rows):
        connection.executemany(sql, rows[done:] if done else rows)


@lru_cache(maxsize=1024)
def _sizes(sql: str) -> tuple[tuple[int, int, str], ...]:
    """Rows, variables of each, and the statement for that many; the most first. Empty for what is not plain."""
    match = _PLAIN.fullmatch(sql)
    if match is None:
        return ()
    values = match["values"]
    width = values.count("?")
    return tuple(
        (number, width, sql.rstrip() + f", {values}" * (number - 1)) for number in ROWS if number * width <= VARIABLES
    )


@lru_cache(maxsize=1024)
def _adds(sql: str) -> bool:
    """Whether a statement only adds to counters of the row with a key, which is its last variable."""
    match = _ADDING.fullmatch(sql)
    if match is None:
        return False
    others = _OTHER.findall(match["others"])
    columns = [match["first"], *(column for column, _ in others)]
    key = sql.rsplit(" WHERE ", 1)[1].removesuffix(" = ?")
    return all(column == same for column, same in others) and len({*columns, key}) == len(columns) + 1


def _summed(rows: Sequence[Row]) -> Sequence[Row]:
    """One row for each key. Only whole numbers have the same sum in any order."""
    sums: dict[str, list[int]] = {}
    width = len(rows[0])
    for row in rows:
        numbers, key = row[:-1], row[-1] if row else None
        if len(row) != width or type(key) is not str or any(type(number) is not int for number in numbers):
            return rows
        held = sums.setdefault(key, [0] * len(numbers))
        for place, number in enumerate(numbers):
            held[place] += number
    return [(*numbers, key) for key, numbers in sums.items()]


@lru_cache(maxsize=1024)
def _table(sql: str) -> str | None:
    """The only table that a statement reads or writes; none where that is not plain to see."""
    match = _HEAD.fullmatch(sql)
    if match is None or _LOOKS_ELSEWHERE.search(match["rest"]):
        return None
    return match["table"].strip('"').lower()
