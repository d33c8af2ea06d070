"""gateway/cli/reactor_replay.py: what is asked of the station, by what was typed, and what is shown of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from device_agent.clock import Clock
from device_agent.errors import PolicyRefused, UsageInvalid
from gateway.cli import reactor_replay
from gateway.cli.output import Output
from gateway.cli.reactor_replay import FILE_BYTES, run, wanted
from gateway.cli.reactor_views import ReactionView, ReplayedView, ReplayPage, TroubleView
from tests.peers.api_double import ApiDouble
from tests.unit.gateway.cli.conftest import Shell

if TYPE_CHECKING:
    from gateway.cli.client import StationClient


def test_lengths_of_time_become_moments(tmp_path: Path) -> None:
    assert wanted(10_000.0, "1h", None, None, None) == {"since": 6400.0, "until": 10_000.0, "tag": "*"}
    assert wanted(10_000.0, "9000d", "30m", None, "site/*") == {"since": 0.0, "until": 8200.0, "tag": "site/*"}
    rule = tmp_path / "a.sls"
    rule.write_text("é: {}\n")
    assert wanted(10_000.0, "1h", None, rule, "site/*")["rule"] == "é: {}\n"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read"),
        (b"", "is empty"),
        (b"a: \xff\n", "is no text"),
        ("é".encode() * FILE_BYTES, "too long to be sent along"),
    ],
    ids=["gone", "empty", "binary", "long"],
)
def test_a_file_that_cannot_be_sent_is_named(content: bytes | None, what: str, tmp_path: Path) -> None:
    rule = tmp_path / "a.sls"
    if content is not None:
        rule.write_bytes(content)
    with pytest.raises(UsageInvalid, match=what) as wrong:
        wanted(10_000.0, "1h", None, rule, "site/*")
    assert str(rule) in (wrong.value.found or "")


@pytest.mark.parametrize(
    ("typed", "what"),
    [
        (["--since", "1x"], "--since takes a length of time"),
        (["--since", "1h", "--until", "2h"], "--until is before --since"),
        (["--rule", "a.sls"], "--rule is for the events of --tag"),
    ],
)
def test_what_makes_no_sense_is_not_asked(typed: list[str], what: str, api: ApiDouble, shell: Shell) -> None:
    finished = shell.here("reactor", "replay", *typed)
    assert (finished.status, finished.out) == (2, "")
    assert what in finished.error
    assert api.asked("POST", "/reactor/replay") == []


class Terminal(io.StringIO):
    """Takes what is printed, as a terminal would."""

    def isatty(self) -> bool:
        """It is one."""
        return True


class Busy:
    """A station whose renderings have no room now and then, which is hard to cause with a real one."""

    def __init__(self, *answers: ReplayPage | PolicyRefused) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def ask(self, method: str, path: str, answer: type[ReplayPage], *, body: dict[str, Any]) -> ReplayPage:
        """The next answer."""
        assert (method, path, answer) == ("POST", "/reactor/replay", ReplayPage)
        self.asked.append(body["after"])
        found = self.answers.pop(0)
        if isinstance(found, PolicyRefused):
            raise found
        return found


def page(more: dict[str, int] | None, *, looked: int = 0, level: str = "") -> ReplayPage:
    """A page with one event that matches, where it has a level for what is wrong with it."""
    reaction = ReactionView(id="a", file="given.sls", rule="s*", said="local.test.ping", kind="local", fun="test.ping")
    trouble = TroubleView(file="given.sls", what="odd", level=level)
    event = ReplayedView(
        number=1, tag="site/\x1b[2J", stamp=0.0, site="lisbon", rules=["s*"], reactions=[reaction], troubles=[trouble]
    )
    return ReplayPage(events=[event] if level else [], looked=looked, guarded=1, at=60.0, next=more)


def replayed(station: Busy) -> tuple[int, str, str]:
    out, error = io.StringIO(), Terminal()
    output = Output(out, error, {"TERM": "xterm"}, Clock())
    status = run(cast("StationClient", station), output, {}, Path("mine.sls"), as_json=False)
    return status, out.getvalue(), error.getvalue()


def test_pages_are_asked_for_to_the_end_and_a_busy_station_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactor_replay, "AGAIN_SECONDS", 0.0)
    busy = PolicyRefused("too much to render", error_id="reactor.busy")
    first, second = {"event": 5, "outcome": 0}, {"event": 9, "outcome": 2}
    station = Busy(
        page(first, looked=5000, level="warning"), busy, busy, page(second), page(None, looked=2, level="warning")
    )
    status, out, error = replayed(station)
    assert (status, station.asked) == (0, [{}, first, first, first, second])
    assert out.count("rule s*, mine.sls: a: local.test.ping\n") == 2
    assert "\x1b" not in out
    assert "5,000 events looked at, 1 match, at 1970-01-01T00:01:00Z" in error
    assert error.count("mine.sls: warning: odd") == 1
    assert "5,002 events looked at, 3 of the reactor's own, 2 match; reactions: 2 local; 0 errors, 2 warnings" in error
    assert replayed(Busy(page(None, looked=1, level="error")))[0] == 1


def test_another_refusal_ends_it() -> None:
    with pytest.raises(PolicyRefused, match="may not"):
        replayed(Busy(PolicyRefused("eve may not run jobs", error_id="policy.role")))
