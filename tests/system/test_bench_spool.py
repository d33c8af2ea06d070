"""``bench spool`` as it is run: every item accepted, delivered and deleted on both sides, and nothing left behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ITEMS = 3000
COMMAND = [sys.executable, "-m", "gateway.cli.main", "bench", "spool", "--items", str(ITEMS)]


def run(folder: Path, *more: str, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *more],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        preexec_fn=before,
    )


def test_each_part_is_an_object_for_each_repeat_and_the_worst_median_is_last(tmp_path: Path) -> None:
    finished = run(tmp_path, "--repeat", "2", "--json")
    assert (finished.returncode, finished.stderr) == (0, "")
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [line["part"] for line in lines[:6]] == ["accept", "drain", "status"] * 2
    assert [line["median"] for line in lines] == [False] * 6 + [True] * 3
    assert {line["part"] for line in lines[6:]} == {"accept", "drain", "status"}
    assert lines[-1]["ratio"] == max(line["ratio"] for line in lines[6:])
    for line in lines:
        assert line["bench"] == "spool"
        assert line["params"] == {"items": ITEMS, "repeat": 2, "producers": 64, "together": 16}
        assert line["ok"] == ITEMS
        assert min(line["ours"], line["reference"]) > 0
        assert line["peers"] == {}
        assert all(used["peak_rss_bytes"] > 1_000_000 for used in line["processes"].values())
        if line["part"] == "drain":
            assert set(line["processes"]) == {"gateway", "master", "reference sender", "reference collector"}
            assert line["slowest_tenth"] >= 1
            assert line["file_bytes_before"] > 100 * ITEMS
            assert line["file_bytes_after"] > 0
        if line["part"] == "status":
            assert line["reference_items"] == ITEMS // 10
    assert list(tmp_path.iterdir()) == []


def test_people_see_a_table(tmp_path: Path) -> None:
    finished = run(tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "every one accepted, delivered and deleted" in finished.stdout
    for word in ("accept", "drain", "status", "reference collector"):
        assert word in finished.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_may_not_grow_gives_no_figure(tmp_path: Path) -> None:
    finished = run(tmp_path, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_200_000, 1_200_000)))
    assert finished.returncode == 1
    assert finished.stdout == ""
    assert "so there is no figure" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert list(tmp_path.iterdir()) == []
