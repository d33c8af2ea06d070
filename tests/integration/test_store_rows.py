"""Statements of many units joined, and many rows with one statement: the same is in the file as row by row."""

from __future__ import annotations

import itertools
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.store.migrate import migrate
from gateway.store.rows import Statement, joined, run
from tests.peers.database import look

TABLES = """
CREATE TABLE a (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, value);
CREATE UNIQUE INDEX a_key ON a (key);
CREATE TABLE b (key TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIEW names AS SELECT key FROM b;
"""
PLAIN = "INSERT INTO a (key, value) VALUES (?, ?)"


def memory() -> sqlite3.Connection:
    """An empty database."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(TABLES)
    return connection


def content(connection: sqlite3.Connection) -> list[Any]:
    """Every row of it."""
    return [connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in ("a", "b")]


def started(sql: str, rows: list[tuple[Any, ...]]) -> int:
    """How many statements were started for these rows."""
    with closing(memory()) as connection:
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        run(connection, sql, rows)
        return len(seen)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 127, 128, 129, 300])
def test_rows_are_in_the_table_once_and_in_their_order(count: int) -> None:
    rows = [(f"k{number}", number) for number in range(count)]
    with closing(memory()) as connection:
        run(connection, PLAIN, rows)
        assert connection.execute("SELECT id, key, value FROM a ORDER BY id").fetchall() == [
            (place, *row) for place, row in enumerate(rows, 1)
        ]


@pytest.mark.parametrize(
    "sql",
    [
        PLAIN,
        "INSERT OR IGNORE INTO a (key, value) VALUES (?, ?)",
        "INSERT OR REPLACE INTO a (key, value) VALUES (?,?)",
        'INSERT INTO "a" ("key", value) VALUES (?, ?) ',
    ],
)
def test_plain_inserts_are_few_statements(sql: str) -> None:
    assert started(sql, [(f"k{number}", 1) for number in range(256)]) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO b (key, count) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET count = count + excluded.count",
        "INSERT INTO a (key, value) VALUES (?, ? + 1)",
        "INSERT INTO a (key, value) VALUES (?1, ?2)",
        "INSERT INTO a (key, value) SELECT ?, ?",
        "REPLACE INTO a (key, value) VALUES (?, ?)",
        "INSERT INTO b VALUES (?, ?)",
    ],
)
def test_anything_else_goes_row_by_row(sql: str) -> None:
    assert started(sql, [(f"k{number}", 1) for number in range(256)]) == 256


def test_a_wide_row_stays_within_what_one_statement_takes() -> None:
    columns = [f"c{number}" for number in range(300)]
    sql = f"INSERT INTO wide ({', '.join(columns)}) VALUES ({', '.join('?' * 300)})"
    with closing(memory()) as connection:
        connection.execute(f"CREATE TABLE wide ({', '.join(columns)})")
        run(connection, sql, [tuple(range(300))] * 200)
        assert connection.execute("SELECT count(*), sum(c299) FROM wide").fetchall() == [(200, 200 * 299)]


@pytest.mark.parametrize("widths", [(1, 3), (3, 1), (2, 1), (2, 3)])
def test_rows_of_a_wrong_width_are_refused_even_if_they_make_up_for_each_other(widths: tuple[int, int]) -> None:
    rows: list[tuple[Any, ...]] = [tuple(f"{number}-{value}" for value in range(2)) for number in range(126)]
    rows[60:60] = [tuple(f"x{width}-{value}" for value in range(width)) for width in widths]
    with closing(memory()) as connection, pytest.raises(sqlite3.Error):
        run(connection, PLAIN, rows)


def test_ignoring_and_replacing_mean_the_same_within_one_statement() -> None:
    rows = [(f"k{number % 40}", number) for number in range(200)]
    for verb in ("IGNORE", "REPLACE"):
        sql = f"INSERT OR {verb} INTO a (key, value) VALUES (?, ?)"
        with closing(memory()) as one, closing(memory()) as other:
            run(one, sql, rows)
            other.executemany(sql, rows)
            assert content(one) == content(other)


COUNT = "UPDATE b SET count = count + ? WHERE key = ?"


def counted(sql: str, rows: list[tuple[Any, ...]]) -> tuple[int, list[Any]]:
    """How many statements were started, and what is counted then."""
    with closing(memory()) as connection:
        connection.executemany("INSERT INTO b VALUES (?, 10)", [("x",), ("y",)])
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        run(connection, sql, rows)
        connection.set_trace_callback(None)
        return len(seen), connection.execute("SELECT * FROM b").fetchall()


def test_what_is_added_to_a_counter_is_added_once() -> None:
    rows = [(number, "xyz"[number % 3]) for number in range(30)]
    assert counted(COUNT, rows) == (3, [("x", 10 + sum(range(0, 30, 3))), ("y", 10 + sum(range(1, 30, 3)))])


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE b SET count = count * 2 + ? WHERE key = ?",
        "UPDATE b SET count = ? WHERE key = ?",
        "UPDATE b SET count = count + ?, count = count + 0 WHERE key = ?",
        COUNT + " AND count > 0",
    ],
)
def test_what_is_more_than_adding_is_done_one_by_one(sql: str) -> None:
    rows = [(number, "xy"[number % 2]) for number in range(30)]
    with closing(memory()) as other:
        other.executemany("INSERT INTO b VALUES (?, 10)", [("x",), ("y",)])
        other.executemany(sql, rows)
        assert counted(sql, rows) == (30, other.execute("SELECT * FROM b").fetchall())


@pytest.mark.parametrize("odd", [(0.1, "x"), ("1", "x"), (1, b"x"), (None, "x")])
def test_only_whole_numbers_are_summed(odd: tuple[Any, ...]) -> None:
    assert counted(COUNT.replace("count + ?", "coalesce(count, 0) + coalesce(?, 0)"), [(1, "x"), (2, "x")])[0] == 2
    if odd[0] is not None:
        assert counted(COUNT, [(1, "x"), odd, (2, "x")])[0] == 3


STATEMENTS = [
    PLAIN,
    "INSERT OR IGNORE INTO a (key, value) VALUES (?, ?)",
    "UPDATE a SET value = ?2 WHERE key = ?1",
    "DELETE FROM a WHERE key = ?1 AND value > ?2",
    "INSERT INTO b (key, count) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET count = count * 3 + excluded.count",
    "UPDATE b SET count = count * 2 + ?2 WHERE key = ?1",
    "DELETE FROM b WHERE key = ?1 OR ?2 IS NULL",
    "UPDATE b SET count = count + (SELECT count(*) FROM a) + ?2 WHERE key = ?1",
    "INSERT OR REPLACE INTO a (key, value) SELECT key, count * ?2 FROM b WHERE key = ?1",
    "DELETE FROM a WHERE key IN names AND key = ?1 AND ?2",
    "UPDATE b SET count = count + ?2 WHERE key = ?1",
    "UPDATE b SET count = count + last_insert_rowid() + ?2 WHERE key = ?1",
]


@pytest.mark.parametrize("seed", range(60))
def test_joined_statements_leave_what_they_leave_one_by_one(seed: int) -> None:
    source = random.Random(seed)
    fresh = itertools.count()
    units: list[list[Statement]] = []
    for _ in range(60):
        unit: list[Statement] = []
        for _ in range(source.randint(1, 3)):
            sql = source.choice(STATEMENTS)
            key = f"new{next(fresh)}" if sql == PLAIN else f"k{source.randint(0, 6)}"
            unit.append((sql, [(key, source.randint(0, 5))]))
        units.append(unit)
    with closing(memory()) as one, closing(memory()) as other:
        for sql, together in joined(units):
            run(one, sql, together)
        for unit in units:
            for sql, rows in unit:
                other.executemany(sql, rows)
        assert content(one) == content(other)


def test_units_of_the_same_kind_are_joined_table_by_table() -> None:
    units: list[list[Statement]] = [
        [
            (PLAIN, [(f"k{number}", number)]),
            (STATEMENTS[4], [("c", 1)]),
        ]
        for number in range(50)
    ]
    assert [(sql, len(rows)) for sql, rows in joined(units)] == [(PLAIN, 50), (STATEMENTS[4], 50)]


def test_the_schema_has_nothing_by_which_a_statement_touches_another_table(tmp_path: Path) -> None:
    migrate(tmp_path / "store")
    assert look(tmp_path / "store", "SELECT name FROM sqlite_schema WHERE type = 'trigger'") == []
    assert look(tmp_path / "store", "SELECT name FROM sqlite_schema WHERE sql LIKE '%REFERENCES%'") == []
