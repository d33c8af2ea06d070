"""gateway/cli/output.py."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import pytest

from device_agent.clock import Clock
from gateway.cli.key_views import KeyView
from gateway.cli.output import TABLE_ROWS, Output

NOW = 1_795_230_900.0


class Stopped(Clock):
    def wall(self) -> float:
        return NOW


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def output(stream: io.StringIO, environment: Mapping[str, str] | None = None) -> Output:
    return Output(stream, stream, {"TERM": "xterm-256color"} if environment is None else environment, Stopped())


def test_a_pipe_gets_plain_lines_and_whole_columns() -> None:
    pipe = io.StringIO()
    rows = output(pipe).table(("id", "n"), [("cam-1", "7"), (("x" * 300, "red"), "1,000")], numbers=("n",))
    assert rows == 2
    assert pipe.getvalue().splitlines() == [
        f"{'ID':<300}      N",
        f"{'cam-1':<300}      7",
        f"{'x' * 300}  1,000",
    ]


def test_a_table_without_rows_has_no_heading() -> None:
    pipe = io.StringIO()
    assert output(pipe).table(("id",), []) == 0
    assert not pipe.getvalue()


def test_a_terminal_gets_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    output(terminal).line(("ok", "green"), " fine")
    assert terminal.getvalue() == "\x1b[32mok\x1b[0m fine\n"


@pytest.mark.parametrize("environment", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_means_not_one_escape(environment: dict[str, str]) -> None:
    terminal = Terminal()
    out = output(terminal, environment)
    out.line(("ok", "bold green"))
    out.table(("id",), [(("cam-1", "red"),)])
    out.facts([("id", "cam-1")])
    assert "\x1b" not in terminal.getvalue()


def test_markup_and_emoji_names_are_not_interpreted() -> None:
    terminal = Terminal()
    out = output(terminal)
    out.line("[red]x[/red] :smile: [link=http://x]y[/link] 127.0.0.1")
    assert terminal.getvalue() == "[red]x[/red] :smile: [link=http://x]y[/link] 127.0.0.1\n"
    out.table(("id",), [("[red]x[/red]",)])
    assert "[red]x[/red]" in terminal.getvalue().splitlines()[-1]


def test_a_long_line_is_left_to_the_terminal_to_wrap() -> None:
    terminal = Terminal()
    output(terminal).line("x" * 500)
    assert terminal.getvalue() == "x" * 500 + "\n"


def test_a_table_too_long_to_measure_is_plain_on_a_terminal_too() -> None:
    terminal = Terminal()
    assert output(terminal).table(("id",), [("x",)] * (TABLE_ROWS + 1)) == TABLE_ROWS + 1
    assert "\x1b" not in terminal.getvalue()


def test_json_is_one_ascii_object_per_line() -> None:
    pipe = io.StringIO()
    out = output(pipe)
    out.json({"value": "ü\x9b\n"})
    out.record("key", KeyView(site="lisbon", state="pending"))
    first, second = pipe.getvalue().splitlines()
    assert first.isascii()
    assert json.loads(first) == {"value": "ü\x9b\n"}
    assert list(json.loads(second).items())[:3] == [("type", "key"), ("site", "lisbon"), ("state", "pending")]


def test_times_are_for_people_on_a_terminal_and_bare_in_a_pipe() -> None:
    on_terminal, in_pipe = output(Terminal()), output(io.StringIO())
    assert (on_terminal.time(NOW - 300), on_terminal.age(NOW - 300)) == ("2026-11-21T03:10:00Z (5m ago)", "5m ago")
    assert (in_pipe.time(NOW - 300), in_pipe.age(NOW - 300)) == ("2026-11-21T03:10:00Z", "2026-11-21T03:10:00Z")
    assert (in_pipe.time(None), on_terminal.age(None, "-")) == ("never", "-")


def test_a_status_line_never_wraps() -> None:
    terminal = Terminal()
    out = output(terminal, {"TERM": "xterm", "NO_COLOR": "1"})
    out.status_line([("w" * 500, "bold")])
    out.clear_status_line()
    shown = terminal.getvalue()
    assert shown.startswith("\r\x1b[2Kwww")
    assert shown.endswith("…\r\x1b[2K")
    assert "\n" not in shown
    assert len(shown) < 100


def test_what_is_known_of_a_thing_stands_apart_from_its_name() -> None:
    pipe = io.StringIO()
    output(pipe).facts([("fleet", "ours"), ("site-authority", "kept.keys")])
    assert pipe.getvalue().splitlines() == ["fleet:       ours", "site-authority: kept.keys"]
