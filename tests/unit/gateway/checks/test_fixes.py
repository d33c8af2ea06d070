"""What findings tell people to type exists: each ``outstation`` command with its options, and each unit of systemd."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from gateway.cli.program import app
from tests.house.tree import ROOT

ENDS = re.compile(r"[;,:()]| or | then | and | to | shows | asks | says |$")
"""Where a command ends in a sentence."""

FILES = sorted((ROOT / "gateway" / "checks").glob("*.py"))
UNITS = {path.name.rsplit(".", 1)[0] for path in (ROOT / "systemd").iterdir()}
VERBS = {"start", "stop", "restart", "reload", "status", "enable", "edit", "is-active"}


def text_of(node: ast.expr) -> str:
    """A text of the source; what is filled in at the time is X."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "X"


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text of a file, without its docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr | ast.Constant | ast.BinOp):
            yield text_of(node)
        else:
            yield from texts(node)


def commands() -> Iterator[tuple[str, str]]:
    """Each command that a check names, with where."""
    for path in FILES:
        for text in texts(ast.parse(path.read_text(encoding="utf-8"))):
            for begin in re.finditer(r"(?<![-\w/])outstation (?=[a-z-])", text):
                rest = text[begin.end() :]
                end = ENDS.search(rest)
                assert end is not None
                yield path.name, rest[: end.start()].strip()


@pytest.mark.parametrize(("where", "line"), sorted(set(commands())))
def test_a_command_that_is_named_exists_with_its_options(where: str, line: str) -> None:
    found: Any = get_command(app)
    words = line.split()
    while words and hasattr(found, "commands"):
        name = words.pop(0)
        if name.startswith("-"):
            break
        assert name in found.commands, f"{where}: outstation {line}: there is no {name}"
        found = found.commands[name]
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    named = {word.partition("=")[0] for word in line.split() if word.startswith("-")}
    assert named <= known | {"--help"}, f"{where}: outstation {line}"


def test_there_are_commands_to_look_at() -> None:
    assert len(set(commands())) > 20


def test_a_unit_that_is_named_exists() -> None:
    named = set()
    for path in FILES:
        for text in texts(ast.parse(path.read_text(encoding="utf-8"))):
            for verb, unit in re.findall(r"systemctl (?:--now )?([a-z-]+)(?: --now)? ([\w@.'*-]+)", text):
                if verb != "show":
                    assert verb in VERBS, text
                    named.add(unit)
    assert named
    assert named - {"X", "outstation-X"} <= UNITS
