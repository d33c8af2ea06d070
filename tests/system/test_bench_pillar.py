"""``bench pillar`` as it is run: every pillar right on both sides, and compiled once for each distinct input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

DEVICES = 160
COMMAND = [sys.executable, "-m", "gateway.cli.main", "bench", "pillar", "--devices", str(DEVICES)]


def run(folder: Path, *more: str) -> str:
    done = subprocess.run(
        [*COMMAND, "--peers", str(folder / "none"), *more],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return done.stdout


def test_each_part_is_an_object_and_the_worst_median_is_last(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in run(tmp_path, "--json").splitlines()]
    assert len(lines) == 6
    for line in lines:
        assert (line["bench"], line["ok"], line["peers"]) == ("pillar", DEVICES, {})
        assert line["params"] == {"devices": DEVICES, "files": 50, "repeat": 1}
        assert min(line["ours"], line["reference"]) > 0
        assert set(line["processes"]) == {"station", "reference"}
    medians = [line for line in lines if "median" in line]
    assert {line["part"] for line in medians} == {"5 inputs", "20 inputs", "80 inputs"}
    assert medians[-1]["ratio"] == max(line["ratio"] for line in medians)


def test_people_are_told_what_each_takes(tmp_path: Path) -> None:
    assert "salt-call not measured: make bench-peers gets it" in run(tmp_path)
