"""What a camera loads: importing the agent must not bring in what only a station has."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.house.tree import ROOT

HEAVY = {
    "aiosqlite",
    "amqtt",
    "asyncssh",
    "httpx",
    "jinja2",
    "rich",
    "sqlite3",
    "starlette",
    "typer",
    "upstream",
    "uvicorn",
    "uvloop",
    "zmq",
}


def loaded_by(module: str) -> set[str]:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return {module.partition(".")[0] for module in json.loads(result.stdout)}


@pytest.mark.parametrize("module", ["device_agent.running", "device_agent.command_line.program", "gateway.cli.camera"])
def test_what_runs_on_a_camera_loads_nothing_heavy(module: str) -> None:
    assert not loaded_by(module) & HEAVY


def test_the_heavy_would_be_seen() -> None:
    assert {"sqlite3", "zmq"} <= loaded_by("zmq, sqlite3")
