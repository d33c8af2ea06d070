"""docs/moving-from-salt.md: what it shows is what the command says of such a box."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from gateway.cli.program import app
from gateway.salt.import_box import Asked, lines_of, look
from tests.house.tree import ROOT
from tests.peers.salt_box import salt_box

PAGE = (ROOT / "docs" / "moving-from-salt.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^    (?:site\$ sudo )?(outstation .*?)(?:   .*)?$", PAGE, re.MULTILINE)


def test_the_session_of_the_page_is_what_is_said(tmp_path: Path) -> None:
    box = salt_box(tmp_path)
    said = [line.replace(str(tmp_path), "") for line in lines_of(look(Asked(box.salt)).findings)]
    shown = PAGE.partition("```text\n")[2].partition("\n```")[0].splitlines()
    assert shown
    for line, after in zip(shown, [*shown[1:], ""], strict=True):
        assert line in said
        if after.startswith(" ") and not line.startswith(" "):
            assert said[said.index(line) + 1] == after


@pytest.mark.parametrize("line", TYPED)
def test_a_line_of_the_page_is_a_command_line_that_parses(line: str) -> None:
    _, *words = shlex.split(line)
    command = get_command(app)
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    command.make_context("x", words)
