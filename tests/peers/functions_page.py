"""What docs/functions.md says, table by table."""

from __future__ import annotations

import re

from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "functions.md"


def section(title: str) -> str:
    """What stands under a heading, with the headings below it."""
    text = PAGE.read_text(encoding="utf-8").partition(f"# {title}\n")[2]
    level = len(re.findall(r"^#+(?= " + re.escape(title) + "$)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[0])
    return re.split(rf"^#{{1,{level}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def listed(title: str) -> list[list[list[str]]]:
    """The rows of a table: what is set in code type, cell by cell."""
    rows = [line for line in section(title).splitlines() if line.startswith("| `")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|")] for row in rows]


def named(title: str) -> set[str]:
    """The functions that the rows of a table are about."""
    return {span.split()[0] for row in listed(title) for span in row[0]}


def words(title: str) -> set[tuple[str, str]]:
    """Function and argument, of a table that has them in its first two columns."""
    return {(name, word) for row in listed(title) for name in row[0] for word in row[1]}
