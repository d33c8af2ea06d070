"""gateway/cli/main.py: the one way in, and what comes out of it when something breaks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from device_agent import __version__
from device_agent.errors import ConfigInvalid
from gateway.cli import program
from gateway.cli.main import main
from tests.peers.api_double import ApiDouble
from tests.unit.gateway.cli.conftest import ROOT, Shell

# `find_spec` looks along the path that this sets, so the packages are as missing as if they were not installed.
WITHOUT_STATION = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"typer", "rich"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in {"typer", "rich"} else found(name)
sys.argv[0] = "outstation"
from gateway.cli.main import entry
entry()
"""


def camera(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_STATION, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_version_is_the_products(shell: Shell) -> None:
    finished = shell.run("--version")
    assert (finished.status, finished.out, finished.error) == (0, f"outstation {__version__}\n", "")


def test_an_error_nobody_foresaw_is_a_line_and_no_traceback(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise ValueError("half a\nthing \x1b[2J")

    monkeypatch.setattr(program, "main", broken)
    finished = shell.here("check")
    assert (finished.status, finished.out) == (1, "")
    assert finished.error.splitlines() == [
        r"error: ValueError: half a thing \x1b[2J",
        "  this is a fault of outstation itself; OUTSTATION_DEBUG=1 shows where",
    ]
    monkeypatch.setenv("OUTSTATION_DEBUG", "1")
    assert "Traceback" in shell.here("check").error


@pytest.mark.parametrize(
    "line",
    [
        *(["run", "cam-1", "test.echo", "a\udcffb"], ["runner", "test.arg", "x=a\udcffb"], ["fire", "a", "x=a\udcffb"]),
        *(["run", "a\udcffb", "test.ping"], ["devices", "list", "a\udcffb"], ["devices", "show", "a\udcffb"]),
    ],
)
@pytest.mark.usefixtures("api")
def test_an_argument_that_is_not_utf_8_is_named(line: list[str], shell: Shell) -> None:
    finished = shell.run(*line)
    assert (finished.status, finished.out) == (2, "")
    what, found, allowed, fix = finished.error.splitlines()
    assert what == "error: an argument is not UTF-8"
    assert found.endswith(r"a\xffb")
    assert allowed == "  allowed: text in UTF-8"
    assert "iconv -f ISO-8859-1 -t UTF-8" in fix


@pytest.mark.usefixtures("api")
def test_an_argument_that_begins_with_a_dash_is_told_to_follow_two_of_them(shell: Shell) -> None:
    finished = shell.run("run", "cam-1", "test.echo", "-x")
    assert finished.status == 2
    what = finished.error.splitlines()[0]
    assert what == (
        "error: no such option: -x; an argument that begins with a dash follows --: outstation run … -- ARG"
    )
    assert "did you mean --limit?" in shell.run("run", "cam-1", "test.echo", "--limt").error


def test_errors_of_several_parts_are_told_one_by_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        wrong = ConfigInvalid("no such key", where="gateway.yaml:3", found="prot", allowed="port")
        raise ExceptionGroup("parts", [ExceptionGroup("part", [wrong]), ConfigInvalid("and another")])

    monkeypatch.setattr(program, "main", broken)
    finished = shell.here("check")
    assert finished.status == 6
    assert finished.error == (
        "error: no such key (gateway.yaml:3)\n  found:   prot\n  allowed: port\nerror: and another\n"
    )


def test_an_interrupt_has_its_own_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "main", interrupted)
    assert main(["check"]) == 130


def test_help_loads_nothing_that_only_a_command_needs() -> None:
    code = (
        "import sys; from gateway.cli.main import main; main(['--help']);"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    loaded = set(result.stdout.splitlines()[-1].strip("[]").replace("'", "").split(", "))
    assert "typer" in loaded
    assert not loaded & {"aiosqlite", "asyncio", "http", "msgspec", "sqlite3", "starlette", "uvicorn", "yaml", "zmq"}


def test_a_camera_is_told_what_it_lacks() -> None:
    finished = camera("jobs", "list", "--json")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.splitlines() == [
        "error: this machine has the agent alone: jobs list needs the rest of outstation",
        "  try:     pip install 'outstation[station]'",
        "usage: outstation agent COMMAND …",
    ]


def test_a_camera_runs_its_agent(tmp_path: Path) -> None:
    wrong = tmp_path / "agent.yaml"
    wrong.write_text("broker: [\n")
    finished = camera("agent", "run", "--config", str(wrong))
    assert (finished.returncode, finished.stdout) == (6, "")
    assert str(wrong) in finished.stderr
    assert "Traceback" not in finished.stderr


def test_what_is_missing_is_looked_for_by_name(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    find = importlib.util.find_spec

    def without_rich(name: str) -> ModuleSpec | None:
        return None if name == "rich" else find(name)

    monkeypatch.setattr("gateway.cli.main.find_spec", without_rich)
    assert "needs the rest of outstation" in shell.here("demo").error


def test_a_pipe_in_ascii_gets_escapes_and_no_crash(api: ApiDouble, shell: Shell) -> None:
    shell.environment |= {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    api.sites = [{"site": "lisboa-ção", "connected": True}]
    finished = shell.run("sites", "list")
    assert finished.status == 0
    assert r"lisboa-\xe7\xe3o" in finished.out
