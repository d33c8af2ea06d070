"""gateway/cli/results.py."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from device_agent.clock import Clock
from gateway.cli.output import Output
from gateway.cli.results import FOLDED_ABOVE, Results, outcome_words
from gateway.cli.views import OutcomeView

NOW = 1_795_230_900.0


class Screen(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class Stopped(Clock):
    def wall(self) -> float:
        return NOW


def results(*, terminal: bool, as_json: bool = False, fold: bool = True) -> tuple[Results, Screen]:
    screen = Screen(terminal=terminal)
    output = Output(screen, screen, {"TERM": "xterm", "NO_COLOR": "1"}, Stopped())
    return Results(output, as_json=as_json, fold=fold), screen


def ended(device: str, outcome: str = "ok", value: Any = True, site: str = "lisbon", **facts: Any) -> OutcomeView:
    return OutcomeView(id=device, outcome=outcome, value=value, site=site, **facts)


def test_in_a_pipe_each_device_is_a_line_at_once() -> None:
    found, pipe = results(terminal=False)
    found.add(ended("cam-1"))
    assert pipe.getvalue() == "cam-1\tok\ttrue\n"


def test_longer_text_is_indented_under_its_line() -> None:
    found, pipe = results(terminal=False)
    found.add(ended("cam-1", value="one\ntwo\n"))
    found.add(ended("cam-2", "failed", "boom", why="exit status 2"))
    found.add(ended("cam-3", "failed", None, retcode=3))
    assert pipe.getvalue().splitlines() == [
        "cam-1\tok\t",
        "    one",
        "    two",
        "cam-2\tfailed\tit ran and failed: exit status 2",
        "    boom",
        "cam-3\tfailed\tit ran and failed: exit status 3",
    ]


def test_a_device_that_is_not_ok_says_why_and_when_it_was_last_heard() -> None:
    words = outcome_words(ended("x", "unreachable", None, why="not present", seen=NOW - 120), NOW)
    assert words == "it never reached the device: not present; last seen 2026-11-21T03:13:00Z (2m ago)"
    assert outcome_words(ended("x"), NOW) == ""


def test_more_than_a_few_equal_answers_are_one_line_on_a_terminal() -> None:
    found, screen = results(terminal=True)
    for number in range(1002):
        found.add(ended(f"cam-{number:04d}"))
    found.add(ended("odd", value=False))
    found.add(ended("gone", "unreachable", None))
    assert [line.split()[0] for line in screen.getvalue().splitlines()] == ["gone"]
    assert not found.due(1004)
    found.settle(1004)
    assert screen.getvalue().splitlines()[1:] == [
        f"{'1,002 × ok':<20}  true",
        f"{'odd':<20}  {'ok':<11}  false",
    ]


def test_a_few_are_listed_as_soon_as_it_is_known_that_they_are_few() -> None:
    found, screen = results(terminal=True)
    found.add(ended("cam-1"))
    assert not screen.getvalue()
    assert not found.due(0)
    assert found.due(FOLDED_ABOVE)
    found.settle(FOLDED_ABOVE)
    assert screen.getvalue() == f"{'cam-1':<20}  {'ok':<11}  true\n"
    assert not found.due(FOLDED_ABOVE)


def test_what_was_held_when_the_end_is_unknown_is_folded_when_it_is_much() -> None:
    found, screen = results(terminal=True)
    for number in range(FOLDED_ABOVE + 1):
        found.add(ended(f"cam-{number}"))
    found.settle(0)
    assert screen.getvalue() == f"{f'{FOLDED_ABOVE + 1} × ok':<20}  true\n"


def test_equal_means_equal_in_type_too() -> None:
    found, screen = results(terminal=True)
    for number in range(FOLDED_ABOVE):
        found.add(ended(f"a-{number}", value=1))
        found.add(ended(f"b-{number}", value=True))
    found.settle(2 * FOLDED_ABOVE)
    assert [line.split() for line in screen.getvalue().splitlines()] == [
        ["20", "×", "ok", "1"],
        ["20", "×", "ok", "true"],
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_verbose_lists_every_device(*, terminal: bool) -> None:
    found, screen = results(terminal=terminal, fold=False)
    for number in range(50):
        found.add(ended(f"cam-{number}"))
    assert len(screen.getvalue().splitlines()) == 50


def test_one_id_on_two_sites_is_told_apart() -> None:
    found, pipe = results(terminal=False)
    found.add(ended("cam-1"))
    found.add(ended("cam-1", site="porto"))
    assert pipe.getvalue().splitlines() == ["cam-1\tok\ttrue", "cam-1 (porto)\tok\ttrue"]


def test_a_long_value_is_cut_on_a_terminal_only() -> None:
    for terminal, as_json, cut in ((True, False, True), (False, False, False), (True, True, False)):
        found, screen = results(terminal=terminal, as_json=as_json, fold=False)
        found.add(ended("cam-1", value="x" * 5000))
        assert ("x" * 5000 not in screen.getvalue()) == cut
        assert ("… cut:" in screen.getvalue()) == cut


def test_json_keeps_the_value_and_every_field() -> None:
    found, screen = results(terminal=True, as_json=True)
    found.add(ended("cam-1", value={"a": "\x1b[31m"}, duration=0.5))
    assert json.loads(screen.getvalue()) == {
        "type": "outcome",
        "id": "cam-1",
        "outcome": "ok",
        "site": "lisbon",
        "retcode": 0,
        "value": {"a": "\x1b[31m"},
        "why": "",
        "seen": None,
        "ended": None,
        "duration": 0.5,
        "executions": 0,
    }
    assert "\x1b" not in screen.getvalue()
