"""Steps of the store's schema only add, so that the release before goes on with the store when it is put back."""

from __future__ import annotations

import re

import pytest

from gateway.store.migrate import OLDEST_READER, steps
from tests.house.tree import listing, name, python_files

ADDING = re.compile(
    r"CREATE\s+(UNIQUE\s+)?INDEX\s+\w+"
    r"|CREATE\s+TABLE\s+\w+"
    r"|ALTER\s+TABLE\s+(?!station\b|kept_answers\b)\w+\s+ADD\s+(COLUMN\s+)?\w+"
    r"|INSERT\s+INTO\s+ledger\b",
    re.IGNORECASE,
)


def statements(script: str) -> list[str]:
    bare = re.sub(r"--[^\n]*", "", script)
    return [" ".join(statement.split()) for statement in bare.split(";") if statement.strip()]


def changes(script: str) -> list[str]:
    """What of a step does more than add; a new column that must not be empty needs a default."""
    return [
        statement
        for statement in statements(script)
        if not ADDING.match(statement)
        or (
            re.match(r"ALTER", statement, re.IGNORECASE)
            and re.search(r"NOT NULL", statement, re.IGNORECASE)
            and not re.search(r"DEFAULT", statement, re.IGNORECASE)
        )
    ]


def test_what_is_newer_than_the_oldest_reader_only_adds() -> None:
    findings = [
        f"{number:03}.sql: {statement[:80]}"
        for number, script in steps()
        if number > OLDEST_READER
        for statement in changes(script)
    ]
    assert not findings, listing(findings)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE jobs",
        "UPDATE jobs SET state = 'done'",
        "ALTER TABLE jobs RENAME TO tasks",
        "ALTER TABLE jobs ADD COLUMN more TEXT NOT NULL",
        "ALTER TABLE station ADD COLUMN more TEXT",
        "DELETE FROM jobs",
    ],
)
def test_a_step_that_does_more_is_found(statement: str) -> None:
    assert changes(f"CREATE TABLE later (a); {statement};") == [statement]


def test_an_older_release_can_write_a_row_that_has_more_columns_than_it_knows() -> None:
    """Every INSERT names its columns, but for the two tables that never get more."""
    findings = [
        f"{name(path)}: {found}"
        for path in python_files("gateway")
        for found in re.findall(r"INTO (\w+) (?:VALUES|SELECT)", path.read_text(encoding="utf-8"))
        if found not in ("station", "kept_answers") and "bench" not in path.parts
    ]
    assert not findings, listing(findings)
