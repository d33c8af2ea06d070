"""``bench ssh`` as it is run: every answer right on both sides, peers or none, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

DEVICES = 12
COMMAND = [sys.executable, "-m", "gateway.cli.main", "bench", "ssh", "--devices", str(DEVICES)]

PYINFRA = f"""#!{sys.executable}
import sys
place = {{}}
exec(open(next(word for word in sys.argv if word.endswith("inventory.py"))).read(), place)
for name, data in place["hosts"]:
    assert data["ssh_hostname"] == "127.0.0.1"
    print(f"[{{name}}] here")
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A socket's path is short.
    return tmp_path_factory.mktemp("b")


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *more],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def checked(lines: list[dict[str, Any]], server: str) -> None:
    for line in lines:
        assert line["bench"] == "ssh"
        assert line["params"] == {"devices": DEVICES, "repeat": 1, "command": "echo here", "server": server}
        assert line["ok"] == DEVICES
        assert min(line["ours"], line["reference"]) > 0
        if line["part"] != "memory":
            assert set(line["processes"]) == {"gateway", "reference"}
            assert all(used["cpu_seconds"] > 0 for used in line["processes"].values())
            assert 0 < line["ours_first_seconds"] <= line["ours_last_seconds"] <= line["ours"]
            assert 0 < line["reference_first_seconds"] <= line["reference_last_seconds"]
            assert min(line["ours_cpu_ms_per_device"], line["reference_cpu_ms_per_device"], line["cpu_ratio"]) > 0


def test_each_part_is_an_object_and_the_worst_median_is_last(folder: Path) -> None:
    program = folder / "peers/pyinfra/bin/pyinfra"
    program.parent.mkdir(parents=True)
    program.write_text(PYINFRA)
    program.chmod(0o755)
    finished = run(folder, "--json", "--peers", str(folder / "peers"))
    assert (finished.returncode, finished.stderr) == (0, "")
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [line["part"] for line in lines[:3]] == ["connect", "command", "memory"]
    assert {line["part"] for line in lines[3:]} == {"connect", "command", "memory"}
    assert [line["median"] for line in lines] == [False] * 3 + [True] * 3
    assert lines[-1]["ratio"] == max(line["ratio"] for line in lines[3:])
    checked(lines, "asyncssh")
    for line in lines:
        if line["part"] == "connect":
            (peer,) = line["peers"].items()
            assert peer[0] == "pyinfra"
            assert (peer[1]["devices"], peer[1]["ok"]) == (DEVICES, DEVICES)
        else:
            assert line["peers"] == {}
    assert [path.name for path in folder.iterdir()] == ["peers"]


def test_people_see_a_table_and_what_was_not_measured(folder: Path) -> None:
    finished = run(folder, "--peers", str(folder / "none"))
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "every answer right" in finished.stdout
    for word in ("connect", "command", "memory", "bare asyncssh", "salt-ssh and pyinfra not measured"):
        assert word in finished.stdout
    assert list(folder.iterdir()) == []


def test_a_real_sshd_may_be_the_devices(folder: Path) -> None:
    finished = run(folder, "--sshd", "--json", "--peers", str(folder / "none"))
    assert (finished.returncode, finished.stderr) == (0, "")
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(lines) == 6
    checked(lines, "sshd")
    assert list(folder.iterdir()) == []
