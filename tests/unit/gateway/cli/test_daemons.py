"""gateway/cli/daemons.py, demo.py, bench.py and swarm.py: what they hand on to what they start."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import device_agent
import gateway
import gateway.bench
from device_agent.notify import Notifier
from device_agent.swarm import SwarmSettings
from gateway import waiting_room
from tests.unit.gateway.cli.conftest import Shell

Calls = list[tuple[Any, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What was started with which arguments; what is started has tests of its own."""
    made: Calls = []

    def stand_in(package: ModuleType, name: str) -> None:
        module = ModuleType(f"{package.__name__}.{name}")

        def main(*arguments: Any) -> int:
            made.append((name, *(argument for argument in arguments if not isinstance(argument, Notifier))))
            return 6

        module.__dict__["main"] = main
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(package, name, module, raising=False)

    monkeypatch.setattr(waiting_room, "wait_for_name", lambda _config, _notifier: True)
    stand_in(gateway, "station")
    stand_in(gateway, "demo")
    stand_in(gateway.bench, "fanout")
    stand_in(device_agent, "running")
    return made


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("master run", ("station", "master", Path("/etc/outstation/master.yaml"))),
        ("master run --config m.yaml", ("station", "master", Path("m.yaml"))),
        ("gateway run", ("station", "gateway", Path("/etc/outstation/gateway.yaml"))),
        ("gateway run --config g.yaml", ("station", "gateway", Path("g.yaml"))),
        ("agent run", ("running", Path("/etc/outstation/agent.yaml"))),
        ("agent run --config a.yaml", ("running", Path("a.yaml"))),
        ("demo", ("demo", 100, False)),
        ("demo --devices 7 --keep", ("demo", 7, True)),
        ("bench fanout", ("fanout", 1000, 1, False)),
        ("bench fanout --devices 7 --repeat 3 --json", ("fanout", 7, 3, True)),
    ],
)
def test_a_command_starts_its_program_and_ends_with_its_status(
    calls: Calls, shell: Shell, line: str, call: tuple[Any, ...]
) -> None:
    finished = shell.here(*line.split())
    assert calls == [call]
    assert (finished.status, finished.out, finished.error) == (6, "", "")


def test_a_swarm_is_told_what_to_be(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[SwarmSettings] = []
    monkeypatch.setattr("device_agent.swarm.main", told.append)
    line = "swarm --devices 7 --token TOKEN --prefix gate- --report r.json"
    assert shell.here(*line.split()).status == 0
    assert shell.here("swarm", "--token", "A TOKEN").status == 0
    assert told == [
        SwarmSettings(devices=7, token="TOKEN", prefix="gate-", report="r.json"),
        SwarmSettings(devices=100, token="A TOKEN"),
    ]


def test_a_swarm_reads_its_token_from_a_file(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[SwarmSettings] = []
    monkeypatch.setattr("device_agent.swarm.main", told.append)
    file = tmp_path / "token"
    file.write_text("A TOKEN\n", encoding="ascii")
    assert shell.here("swarm", "--token-file", str(file)).status == 0
    assert [each.token for each in told] == ["A TOKEN"]
    for wrong in ([], ["--token", "TOKEN", "--token-file", str(file)]):
        finished = shell.here("swarm", *wrong)
        assert (finished.status, "--token-file" in finished.error) == (2, True)


def test_a_prefix_or_a_token_that_cannot_be_is_a_mistake(shell: Shell) -> None:
    finished = shell.here("swarm", "--token", "TOKEN", "--prefix", "no/slash")
    assert (finished.status, finished.out) == (2, "")
    assert "prefix" in finished.error.splitlines()[0]
    assert finished.error.splitlines()[1] == "usage: outstation swarm [OPTION]…"
    finished = shell.here("swarm", "--token", "TOKEN")
    assert (finished.status, finished.out) == (2, "")
    assert "token" in finished.error.splitlines()[0]


def test_a_device_joins_and_shows_itself_as_it_was_asked_to(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Calls = []

    def noted(status: int) -> Callable[..., int]:
        def call(*given: object) -> int:
            made.append(given)
            return status

        return call

    monkeypatch.setattr("device_agent.membership.join", noted(5))
    monkeypatch.setattr("device_agent.membership.show", noted(6))
    assert shell.here("agent", "join", "A TOKEN", "--wait", "2h").status == 5
    assert shell.here("agent", "join", "--token-file", "t", "--config", "a.yaml").status == 5
    assert shell.here("agent", "show").status == 6
    assert made == [
        (Path("/etc/outstation/agent.yaml"), "A TOKEN", None, 7200.0),
        (Path("a.yaml"), None, Path("t"), 600.0),
        (Path("/etc/outstation/agent.yaml"),),
    ]
    assert shell.here("agent", "join", "--wait", "soon").status == 2
