"""gateway/cli/camera.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import device_agent
from device_agent import __version__
from device_agent.places import AGENT_CONFIG
from gateway.cli import camera


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The settings files that an agent was started with; the agent itself has its own tests."""
    files: list[Path] = []
    agent = ModuleType("device_agent.running")

    def main(config: Path) -> int:
        files.append(config)
        return 5

    agent.__dict__["main"] = main
    monkeypatch.setitem(sys.modules, "device_agent.running", agent)
    monkeypatch.setattr(device_agent, "running", agent, raising=False)
    return files


def test_the_agent_runs_with_its_file(started: list[Path]) -> None:
    assert camera.main(["agent", "run", "--config", "/x.yaml"]) == 5
    assert camera.main(["agent", "run"]) == 5
    assert started == [Path("/x.yaml"), AGENT_CONFIG]


def test_a_device_joins_and_shows_itself_as_it_was_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []

    def noted(status: int) -> Callable[..., int]:
        def call(*given: object) -> int:
            made.append(given)
            return status

        return call

    monkeypatch.setattr("device_agent.membership.join", noted(5))
    monkeypatch.setattr("device_agent.membership.show", noted(6))
    assert camera.main(["agent", "join", "A TOKEN", "--wait", "2h"]) == 5
    assert camera.main(["agent", "join", "--token-file", "t", "--config", "a.yaml"]) == 5
    assert camera.main(["agent", "show"]) == 6
    assert made == [
        (AGENT_CONFIG, "A TOKEN", None, 7200.0),
        (Path("a.yaml"), None, Path("t"), 600.0),
        (AGENT_CONFIG,),
    ]


@pytest.mark.parametrize("line", [[], ["run", "*", "test.ping"], ["jobs", "list"], ["master", "run"]])
def test_everything_else_says_which_extra_is_missing(
    line: list[str], started: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert camera.main(line) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert "outstation[station]" in error
    assert not started


def test_a_mistake_is_one_line_and_the_usage(started: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        camera.main(["agent", "run", "--confg", "x"])
    out, error = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert error.splitlines()[0].startswith("error: unrecognized arguments: --confg")
    assert error.splitlines()[1] == "usage: outstation agent run [OPTION]…"
    assert not started


def test_help_and_version_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert camera.main(["agent", "run", "--help"]) == 0
    assert str(AGENT_CONFIG) in capsys.readouterr().out
    assert camera.main(["--version"]) == 0
    assert capsys.readouterr().out == f"outstation {__version__}\n"
