"""A file or a function that has grown past what one reads at a sitting has taken in a second purpose."""

from __future__ import annotations

import ast

from tests.house.tree import CODE, listing, name, python_files, syntax

LONGEST_FILE = 400
LONGEST_FUNCTION = 80

# "path" or "path:function" -> why it may be longer.
ALLOWED: dict[str, str] = {
    "gateway/rooms.py:__init__": "wiring: a line for each thing each room is given, in the order of need",
}


def too_long() -> dict[str, int]:
    found = {}
    for path in python_files(*CODE):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LONGEST_FILE:
            found[name(path)] = lines
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    found[f"{name(path)}:{node.name}"] = lines
    return found


def test_no_file_and_no_function_is_too_long() -> None:
    findings = [f"{where}: {lines} lines" for where, lines in too_long().items() if where not in ALLOWED]
    assert not findings, listing(findings)


def test_what_may_be_longer_still_is() -> None:
    assert not set(ALLOWED) - set(too_long()), "these are allowed to be longer and no longer need it"
