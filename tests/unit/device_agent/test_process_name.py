"""device_agent/readings/process_name.py, in the beacon ``ps`` and the functions ``ps.*``, on processes of this test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.commands import shell
from device_agent.functions.ps import processes as ps
from device_agent.init_systems import scripts
from device_agent.local_host import LocalHost
from device_agent.readings.process_name import whole_name
from tests.peers.beacon_bench import looked
from tests.peers.waiting import until

NAMES = ("recorder-watchdog", "recorder-watchdog.sh", "Überwachungsdienst-7", "wächter-dienst-ö7")
SLEEPS = "import time; print(flush=True); time.sleep(600)\n"


@pytest.fixture(params=NAMES)
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running script with a name that is longer than the kernel keeps, and with an argument behind it."""
    # No other process may have this name: a test ends what has it.
    program = tmp_path / f"{request.param}-{os.getpid()}"
    program.write_text(f"#!{os.path.realpath(sys.executable)} -I\n{SLEEPS}", encoding="utf-8")
    program.chmod(0o755)
    yield from _running([str(program), f"{tmp_path}/{program.name}-other"])


def _running(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def _name(process: subprocess.Popen[bytes]) -> str:
    assert isinstance(process.args, list)
    return os.path.basename(str(process.args[0]))  # noqa: PTH119 - no path is needed


async def test_a_script_is_told_by_its_whole_name(script: subprocess.Popen[bytes]) -> None:
    name = _name(script)
    assert len(name.encode()) > 15
    watched: dict[str, Any] = {name: "stopped", f"{name}-other": "running"}
    assert await looked("ps", [{"processes": watched}]) == []
    assert await looked("ps", [{"processes": {name: "running"}}]) == [{name: "Running"}]


async def test_a_script_is_found_and_ended_by_its_whole_name(script: subprocess.Popen[bytes]) -> None:
    host, name = LocalHost({}), _name(script)
    assert script.pid in (await ps.pgrep(host, name) or [])
    assert (await ps.proc_info(host, script.pid, ["name"])) == {"name": name}
    assert await ps.pkill(host, f"^{name}$") == {"killed": [script.pid]}
    assert await until(script.poll) == -15


async def test_the_15_letters_of_the_kernel_are_a_name_as_well(tmp_path: Path) -> None:
    program = tmp_path / "recorder-watchdog"
    program.write_text(f"#!{os.path.realpath(sys.executable)}\n{SLEEPS}", encoding="utf-8")
    program.chmod(0o755)
    for _ in _running([str(program)]):
        assert await looked("ps", [{"processes": {"recorder-watchd": "stopped"}}]) == []


async def test_a_service_whose_daemon_is_a_script_runs(tmp_path: Path) -> None:
    name = f"outstation-script-daemon-{os.getpid()}"
    unit = tmp_path / "init"
    unit.write_text("#!/bin/sh\n# no word of its own for how it is\n", encoding="utf-8")
    asked = (scripts.RUNNING, str(unit), name)
    assert not (await shell(LocalHost({}), *asked)).ok
    program = tmp_path / name
    program.write_text(f"#!{os.path.realpath(sys.executable)}\n{SLEEPS}", encoding="utf-8")
    program.chmod(0o755)
    for _ in _running([str(program)]):
        assert (await shell(LocalHost({}), *asked)).ok


@pytest.mark.parametrize(
    ("name", "command", "whole"),
    [
        ("sh", ["/bin/sh", "sh-and-more"], "sh"),
        ("recorder-watchd", ["/usr/bin/recorder-watchdog", "x"], "recorder-watchdog"),
        ("recorder-watchd", ["/usr/bin/perl", "-w", "/opt/recorder-watchdog"], "recorder-watchdog"),
        ("recorder-watchd", ["/bin/sh", "/opt/runner", "/opt/recorder-watchdog"], "recorder-watchdog"),
        ("recorder-watchd", ["recorder-watchdog: writes /var/lib/x", ""], "recorder-watchdog"),
        ("recorder-watchd", ["/usr/bin/recorder-watchd", "/etc/recorder-watchdog.conf"], "recorder-watchd"),
        ("recorder-watchd", ["a", "b", "c", "d", "e", "/etc/recorder-watchdog.conf"], "recorder-watchd"),
        ("recorder-watchd", [], "recorder-watchd"),
        ("w\u00e4chter-dienst\ufffd", ["/bin/sh", "/opt/w\u00e4chter-dienst\u00f6"], "w\u00e4chter-dienst\u00f6"),
    ],
)
def test_a_cut_name_is_completed_from_the_command_line(name: str, command: list[str], whole: str) -> None:
    assert whole_name(name, command) == whole
