"""Tests wait for a condition, through tests/peers/waiting.py, and never for a while."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import listing, name, python_files, syntax

THE_PLACE = "tests/peers/waiting.py"
A_LINE = "tests/peers/slow_line.py"
"""It plays a line with a rate, which is what it sleeps for; no test waits by it."""
SLEEPERS = {"anyio", "asyncio", "time"}


def sleeps(tree: ast.Module) -> Iterator[int]:
    """Lines with a call of asyncio.sleep or time.sleep, under whatever name, with anything but the constant 0."""
    modules = {}
    functions = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module in SLEEPERS:
            functions |= {alias.asname or alias.name for alias in node.names if alias.name == "sleep"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_sleep(node.func, modules, functions) and not _is_zero(node):
            yield node.lineno


def _is_sleep(called: ast.expr, modules: dict[str, str], functions: set[str]) -> bool:
    match called:
        case ast.Name(id=function):
            return function in functions
        case ast.Attribute(value=ast.Name(id=module), attr="sleep"):
            return modules.get(module) in SLEEPERS
        case _:
            return False


def _is_zero(call: ast.Call) -> bool:
    match call.args:
        case [ast.Constant(value=0)]:
            return True
        case _:
            return False


def test_no_test_sleeps() -> None:
    findings = [
        f"{name(path)}:{line}"
        for path in python_files("tests")
        if name(path) not in (THE_PLACE, A_LINE)
        for line in sleeps(syntax(path))
    ]
    assert not findings, listing(findings)


def test_the_place_that_sleeps_is_found() -> None:
    (path,) = (path for path in python_files("tests") if name(path) == THE_PLACE)
    assert list(sleeps(syntax(path)))


def test_a_sleep_under_another_name_is_found_and_zero_is_allowed() -> None:
    source = "from asyncio import sleep as rest\nimport time as t\nrest(1)\nt.sleep(x)\nrest(0)\nother.sleep(3)\n"
    assert list(sleeps(ast.parse(source, filename=str(Path("example.py"))))) == [3, 4]
