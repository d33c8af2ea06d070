"""``bench reactor`` as it is run: every event has its deed on both sides, and nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.peers.processes import processes
from tests.peers.salt_release import MINUTES

pytestmark = [pytest.mark.system, pytest.mark.timeout(60 * MINUTES)]

COUNTS = {"runners": 20, "jobs": 5, "alone": 3}
PARTS = ["runner", "runner_alone", "local", "local_alone"]
COMMAND = [sys.executable, "-m", "gateway.cli.main", "bench", "reactor", "--peers", str(ROOT / ".cache")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short, which sockets need, and that a broker as a user of its own can pass through."""
    made = Path(tempfile.mkdtemp(prefix="b"))
    made.chmod(0o711)
    yield made
    made.rmdir()


@pytest.mark.usefixtures("salt")
def test_each_part_is_an_object_and_the_worst_median_is_last(folder: Path) -> None:
    words = [word for name, count in COUNTS.items() for word in (f"--{name}", str(count))]
    done = subprocess.run(
        [*COMMAND, *words, "--json"],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["part"] for line in lines[:4]] == PARTS
    assert sorted(line["part"] for line in lines[4:]) == sorted(PARTS)
    assert [line["median"] for line in lines] == [False] * 4 + [True] * 4
    assert lines[-1]["ratio"] == max(line["ratio"] for line in lines[4:])
    for line in lines:
        kind, _, alone = line["part"].partition("_")
        assert line["ok"] == (COUNTS["alone"] if alone else COUNTS["runners" if kind == "runner" else "jobs"])
        assert line["params"]["salt"].startswith("3")
        for side in ("ours", "reference"):
            assert 0 < line[f"{side}_p50_ms"] <= line[f"{side}_p99_ms"]
            assert line[f"{side}_per_second"] > 0
    assert list(folder.iterdir()) == []
    assert processes(str(folder)) == []
