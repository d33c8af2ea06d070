"""device_agent/command_line/: the program of a device, with nothing but what a device has."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from device_agent import __version__
from device_agent.command_line import words
from device_agent.command_line.program import main

ROOT = Path(__file__).resolve().parents[4]

# Whatever is installed and is no base dependency, nor a dependency of one, is as missing as on a camera.
ON_A_CAMERA = """
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

HERE = {"_cffi_backend", "_yaml", "aiomqtt", "cbor2", "cffi", "cronsim", "cryptography", "device_agent", "msgspec",
    "paho", "pycparser", "typing_extensions", "yaml", "_cbor2"}

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        known = name in HERE or name in sys.stdlib_module_names or name.startswith("_sysconfigdata_")
        if "." not in name and not known:
            raise ModuleNotFoundError(f"not on a camera: {name}", name=name)

sys.meta_path.insert(0, Missing())
"""


def on_a_camera(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ON_A_CAMERA + code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_every_file_of_the_agent_loads_with_the_base_dependencies_alone() -> None:
    code = """
import importlib, pkgutil, device_agent
names = [found.name for found in pkgutil.walk_packages(device_agent.__path__, "device_agent.")]
for name in names:
    importlib.import_module(name)
assert len(names) > 150, names
"""
    finished = on_a_camera(code)
    assert finished.returncode == 0, finished.stderr
    refused = on_a_camera("import typer")
    assert "not on a camera: typer" in refused.stderr


def test_the_program_runs_where_nothing_else_is(tmp_path: Path) -> None:
    program = "import runpy; runpy.run_module('device_agent', run_name='__main__')"
    wrong = tmp_path / "agent.yaml"
    wrong.write_text("broker: [\n")
    ended = on_a_camera(program, "run", "--config", str(wrong))
    assert (ended.returncode, ended.stdout) == (6, "")
    assert str(wrong) in ended.stderr
    assert "Traceback" not in ended.stderr
    said = on_a_camera(program, "--version")
    assert (said.returncode, said.stdout) == (0, f"outstation {__version__}\n")


def test_without_a_command_the_help_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert main(["--help"]) == 0
    assert (shown.out, shown.err) == ("", capsys.readouterr().out)
    assert all(f"  {verb} " in shown.err for verb in words.VERBS)


def test_a_wrong_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["chek"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: no such command 'chek'. Did you mean 'check'?",
        "usage: outstation-agent [OPTION]… COMMAND …",
        "help:  outstation-agent --help",
    ]


@pytest.mark.parametrize("verb", words.VERBS)
def test_a_help_has_two_examples_that_begin_as_they_are_typed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    here = capsys.readouterr().out
    assert main([verb, "--help"], "outstation agent") == 0
    there = capsys.readouterr().out
    assert there.replace("outstation agent", "outstation-agent") == here
    examples = here.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()[::2]
    assert len(examples) == 2
    for example in examples:
        assert shlex.split(example)[:2] == ["outstation-agent", verb]
