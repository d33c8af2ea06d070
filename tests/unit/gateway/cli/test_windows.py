"""gateway/cli/windows.py."""

from __future__ import annotations

import json

import pytest

from tests.peers.api_double import ISSUED, ApiDouble
from tests.unit.gateway.cli.conftest import Shell


@pytest.fixture(autouse=True)
def closed(api: ApiDouble) -> None:
    window = {"open": False, "opened": ISSUED, "opened_by": "alice", "closes": ISSUED + 600, "max": 5, "taken": 2}
    api.window = {
        "window": {**window, "closed": ISSUED + 60, "why": "its time is up", "model": "P32*"},
        "enrollment_open": True,
        "reasons": {"window": 0, "tokens": 3, "expected": 0, "rejoining": 1},
        "pending": 2,
    }


def test_the_window_is_shown_with_the_reasons_why_devices_may_ask(shell: Shell) -> None:
    assert shell.run("keys", "window", "show").out.splitlines() == [
        "window:      closed",
        "opened:      2026-11-21T03:15:00Z by alice",
        "closed:      2026-11-21T03:16:00Z",
        "why:         its time is up",
        "came:        2 of 5",
        "model:       P32*",
        "waiting:     2 devices",
        "may ask:     yes",
        "because:     3 × join tokens that can still be used",
        "because:     1 × devices that belong here and have not taken their answer",
    ]
    assert json.loads(shell.here("keys", "window", "show", "--json").out)["window"]["taken"] == 2


def test_a_station_that_never_had_a_window_says_so(api: ApiDouble, shell: Shell) -> None:
    api.window = {"window": None, "enrollment_open": False, "reasons": {"window": 0}, "pending": 0}
    assert shell.run("keys", "window", "show").out.splitlines() == [
        "window:      closed",
        "waiting:     0 devices",
        "may ask:     no: the broker lets nobody in who asks to join",
    ]


def test_a_window_is_opened_on_its_terms(api: ApiDouble, shell: Shell) -> None:
    assert "window:      open" in shell.here("keys", "window", "open").out
    shell.here("keys", "window", "open", "--for", "2h", "--max", "7", "--subnet", "192.0.2.0/24", "--model", "P32*")
    assert [body for _, body in api.asked("POST", "/keys/window/open")] == [
        {"seconds": 600.0, "max": 200, "subnet": "", "model": ""},
        {"seconds": 7200.0, "max": 7, "subnet": "192.0.2.0/24", "model": "P32*"},
    ]


def test_a_window_is_closed(api: ApiDouble, shell: Shell) -> None:
    assert shell.here("keys", "window", "close").out.startswith("window:      closed")
    assert api.asked("POST", "/keys/window/close") == [({}, {})]


@pytest.mark.parametrize("option", [("--for", "soon"), ("--max", "0"), ("--max", "x")])
def test_terms_that_cannot_be_are_a_mistake(shell: Shell, option: tuple[str, str], api: ApiDouble) -> None:
    finished = shell.here("keys", "window", "open", *option)
    assert (finished.status, finished.out) == (2, "")
    assert option[0] in finished.error
    assert api.requests == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["window", "open", "--for", "400d"], ["--for", "at most 7d", "400d"]),
        (["window", "open", "--max", "99999999"], ["--max", "20000"]),
        (["token", "new", "--for", "1000d"], ["--for", "at most 365d", "1000d"]),
        (["token", "new", "--uses", "999999"], ["--uses", "20000"]),
        (["accept", "lisbon", "--days", "4000"], ["--days", "400"]),
    ],
)
def test_what_is_out_of_range_is_told_by_its_option_before_anybody_is_asked(
    words: list[str], told: list[str], api: ApiDouble, shell: Shell
) -> None:
    asked = shell.run("keys", *words)
    assert asked.status == 2
    assert [word for word in told if word not in asked.error] == []
    assert not api.asked("POST", "/keys/window/open")
