"""gateway/cli/daemons.py, demo.py, bench.py and swarm.py: what they hand on to what they start."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import device_agent
import gateway
import gateway.bench
from device_agent.swarm import SwarmSettings
from tests.unit.gateway.cli.conftest import Shell

Calls = list[tuple[Any, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What was started with which arguments; what is started has tests of its own."""
    made: Calls = []

    def stand_in(package: ModuleType, name: str) -> None:
        module = ModuleType(f"{package.__name__}.{name}")

        def main(*arguments: Any) -> int:
            made.append((name, *arguments))
            return 6

        module.__dict__["main"] = main
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(package, name, module, raising=False)

    stand_in(gateway, "station")
    stand_in(gateway, "demo")
    stand_in(gateway.bench, "fanout")
    stand_in(device_agent, "agent")
    return made


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("master run", ("station", "master", Path("/etc/outstation/master.yaml"))),
        ("master run --config m.yaml", ("station", "master", Path("m.yaml"))),
        ("gateway run", ("station", "gateway", Path("/etc/outstation/gateway.yaml"))),
        ("gateway run --config g.yaml", ("station", "gateway", Path("g.yaml"))),
        ("agent run", ("agent", Path("/etc/outstation/agent.yaml"))),
        ("agent run --config a.yaml", ("agent", Path("a.yaml"))),
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
    line = "swarm --devices 7 --site lisbon --host 192.0.2.1 --port 1885 --prefix gate- --report r.json"
    assert shell.here(*line.split()).status == 0
    assert shell.here("swarm", "--site", "porto").status == 0
    assert told == [
        SwarmSettings(devices=7, site="lisbon", host="192.0.2.1", port=1885, prefix="gate-", report="r.json"),
        SwarmSettings(devices=100, site="porto"),
    ]


def test_a_site_that_cannot_be_is_a_mistake(shell: Shell) -> None:
    finished = shell.here("swarm", "--site", "no/slash")
    assert (finished.status, finished.out) == (2, "")
    assert "site" in finished.error.splitlines()[0]
    assert finished.error.splitlines()[1] == "usage: outstation swarm [OPTION]…"
