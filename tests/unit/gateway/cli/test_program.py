"""gateway/cli/program.py and command.py: every command's help, and every kind of mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from device_agent import errors
from gateway.cli.failures import INTERRUPTED
from gateway.cli.program import COMMANDS, PROGRAM, app
from tests.peers.api_double import ApiDouble
from tests.unit.gateway.cli.conftest import ROOT, Shell

PARTS = (
    "Arguments:",
    "Options:",
    "Commands:",
    "Targets:",
    "Columns:",
    "Outcomes:",
    "States:",
    "Examples:",
    "Exit statuses:",
)


def lines() -> Iterator[tuple[str, ...]]:
    """Every command line that names a command or a noun."""
    yield from _below(get_command(app), ())


def _below(command: object, line: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield line
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from _below(below, (*line, name))


def named(line: tuple[str, ...]) -> object:
    """The command or the noun that a line names."""
    command: object = get_command(app)
    for word in line:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    return command


@pytest.mark.parametrize("line", [*lines()], ids=" ".join)
def test_every_help_has_the_same_order_and_nothing_is_left_out(shell: Shell, line: tuple[str, ...]) -> None:
    finished = shell.here(*line, "--help")
    assert (finished.status, finished.error) == (0, "")
    purpose, _, usage, *rest = finished.out.splitlines()
    assert purpose.endswith((".", "watch the answers."))
    assert usage.startswith(" ".join(["usage: outstation", *line, "[OPTION]…"]))
    headings = [text for text in rest if text in PARTS]
    assert {"Options:", "Examples:", "Exit statuses:"} <= set(headings)
    assert headings == sorted(headings, key=PARTS.index)
    examples = rest[rest.index("Examples:") : rest.index("Exit statuses:")]
    assert sum(text.startswith("  outstation ") for text in examples) == 2
    assert not re.search(r"\bNone\b", finished.out)
    assert max(map(len, finished.out.splitlines())) <= 104


def example_lines() -> Iterator[str]:
    root = get_command(app)
    for line in lines():
        context = typer.Context(root)
        command = root
        for word in line:
            assert isinstance(command, TyperGroup)
            command = command.commands[word]
        text = command.get_help(typer.Context(command, info_name="x", parent=context))
        yield from (found for found in re.findall(r"^  (outstation .*)$", text, re.MULTILINE) if "&&" not in found)


@pytest.mark.parametrize("line", sorted(set(example_lines())))
def test_every_example_of_the_help_is_a_command_line_that_parses(line: str) -> None:
    import shlex

    root = get_command(app)
    assert isinstance(root, TyperGroup)
    words = shlex.split(line)[1:]
    context = root.make_context("outstation", words, resilient_parsing=False)
    with context:
        rest = [*context._protected_args, *context.args]
        command = root.commands[rest.pop(0)]
        while isinstance(command, TyperGroup):
            command = command.commands[rest.pop(0)]
        command.make_context("x", rest, parent=context)


def test_the_help_lists_every_command_once() -> None:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    assert sorted(COMMANDS) == sorted(root.commands)


def test_the_exit_statuses_are_those_of_the_errors() -> None:
    known = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert set(PROGRAM.exits) == known | {INTERRUPTED}


def test_the_page_about_the_command_line_names_every_command_and_exit_status() -> None:
    page = Path(ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    for line in lines():
        if isinstance(named(line), TyperGroup):
            continue
        assert f"outstation {' '.join(line)}" in page
    for status in PROGRAM.exits:
        assert f"| {status} |" in page
    for outcome in (
        "ok",
        "failed",
        "refused",
        "expired",
        "unreachable",
        "timed_out",
        "unknown",
        "cancelled",
        "site_dark",
    ):
        assert f"| `{outcome}` |" in page


@pytest.mark.parametrize("line", [(), ("jobs",), ("keys",)])
def test_a_missing_command_shows_what_there_is(shell: Shell, line: tuple[str, ...]) -> None:
    finished = shell.here(*line)
    assert (finished.status, finished.out) == (2, "")
    assert finished.error == shell.here(*line, "--help").out


@pytest.mark.parametrize(
    ("line", "error", "usage"),
    [
        (["jbos"], "no such command 'jbos'. Did you mean 'jobs'?", "outstation [OPTION]… COMMAND …"),
        (["jobs", "lst"], "no such command 'lst'. Did you mean 'list'?", "outstation jobs [OPTION]… COMMAND …"),
        (["zzz"], "no such command 'zzz'", "outstation [OPTION]… COMMAND …"),
        (["\x1b[2J"], r"no such command '\x1b[2J'", "outstation [OPTION]… COMMAND …"),
        (["check", "--jsno"], "no such option: --jsno; did you mean --json?", "outstation check [OPTION]…"),
        (["check", "-\x1b"], r"no such option: -\x1b", "outstation check [OPTION]…"),
        (
            ["jobs", "list", "--socket", "x"],
            "no such option: --socket; it goes before the command: outstation --socket … jobs list",
            "outstation jobs list [OPTION]…",
        ),
        (["jobs", "show"], "missing argument 'JID'", "outstation jobs show [OPTION]… JID"),
        (["jobs", "list", "--limit"], "option '--limit' requires an argument", "outstation jobs list [OPTION]…"),
        (["check", "extra"], "got unexpected extra argument(s) (extra)", "outstation check [OPTION]…"),
        (
            ["swarm"],
            "invalid value for --token or --token-file: a swarm joins with one token",
            "outstation swarm [OPTION]…",
        ),
    ],
)
def test_a_mistake_is_one_line_and_the_right_usage(shell: Shell, line: list[str], error: str, usage: str) -> None:
    finished = shell.here(*line)
    assert (finished.status, finished.out) == (2, "")
    first, second, third = finished.error.splitlines()
    assert first == f"error: {error}"
    assert second == f"usage: {usage}"
    assert third.startswith("help:  outstation")


@pytest.mark.parametrize("value", ["x", "0", "1001", "1.5"])
def test_a_number_out_of_bounds_is_a_mistake(shell: Shell, value: str) -> None:
    finished = shell.run("jobs", "list", "--limit", value)
    assert (finished.status, finished.out) == (2, "")
    assert finished.error.startswith("error: invalid value for '--limit': ")
    assert "Traceback" not in finished.error


def test_the_socket_option_wins_over_the_environment(
    api: ApiDouble, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTSTATION_SOCKET", "/nowhere")
    assert shell.here("check").status == 7
    assert shell.here("--socket", str(api.path), "check").status == 0


def test_no_station_is_an_error_that_says_what_to_try(shell: Shell, tmp_path: Path) -> None:
    shell.environment["OUTSTATION_SOCKET"] = str(tmp_path / "none.sock")
    finished = shell.run("jobs", "list")
    assert (finished.status, finished.out) == (7, "")
    assert finished.error.splitlines()[0] == f"error: no station answers at this socket ({tmp_path / 'none.sock'})"
    assert "  try:     systemctl status" in finished.error
