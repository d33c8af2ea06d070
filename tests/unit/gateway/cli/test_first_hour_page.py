"""docs/first-hour.md: what it tells people to type is what the program takes, and its file to join with is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from device_agent.command_line import words
from gateway.cli.program import app
from gateway.fleet.join_file import FILE_NAME, read_wish
from gateway.fleet.join_words import NOT_JOINED
from tests.unit.gateway.cli.conftest import ROOT

PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^\s*(?:site|central|camera)\$ (?:sudo )?(outstation(?:-agent)? .*)$", PAGE, re.MULTILINE)
NAMED = re.findall(r"`(outstation (?:gateway|devices|keys|sites) [^`…]*)`", PAGE)


@pytest.mark.parametrize("line", [*TYPED, *NAMED])
def test_a_line_of_the_page_is_a_command_line_that_parses(line: str) -> None:
    program, *typed = shlex.split(line)
    if program == words.PROGRAM:
        assert typed[0] in words.VERBS
        return
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    command = root.commands[typed.pop(0)]
    while isinstance(command, TyperGroup):
        command = command.commands[typed.pop(0)]
    if typed == ["--address"]:
        # The option is meant, not a line with it.
        assert any("--address" in parameter.opts for parameter in command.params)
        return
    command.make_context("x", typed, resilient_parsing="keys list" in line)


def test_the_page_types_something_at_every_place() -> None:
    assert len(TYPED) >= 6
    assert len(NAMED) >= 4


def test_the_file_on_the_page_joins(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / FILE_NAME).write_text(text)
    wish = read_wish(tmp_path / FILE_NAME)
    assert (wish.site, wish.broker.host, len(wish.tokens())) == ("lisbon", "192.0.2.10", 1)
    assert yaml.safe_load(text)["token"] in PAGE.replace("\n", " ")


def test_the_page_says_what_the_gateway_says() -> None:
    assert f'Status: "{NOT_JOINED}"' in PAGE
