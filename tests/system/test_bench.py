"""The benchmark as it is run: every answer is there, both are measured in one run, and nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.peers.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

DEVICES = 50
SECONDS = 280
COMMAND = [sys.executable, "-m", "gateway.cli.main", "bench", "fanout"]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A socket's path is short.
    return tmp_path_factory.mktemp("b")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def left_behind(folder: Path) -> list[str]:
    """Command lines of processes that work in the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if str(folder).encode() in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


def test_a_run_prints_one_object_for_each_repeat_and_the_median_last(folder: Path) -> None:
    finished = subprocess.run(
        [*COMMAND, "--devices", str(DEVICES), "--repeat", "2", "--json"],
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    first, second, median = (json.loads(line) for line in finished.stdout.splitlines())
    assert [line["median"] for line in (first, second, median)] == [False, False, True]
    for line in (first, second, median):
        assert line["bench"] == line["part"] == "fanout"
        assert line["params"] == {"devices": DEVICES, "repeat": 2, "function": "test.ping"}
        assert line["ok"] == DEVICES
        assert line["ours"] > 0
        assert line["reference"] > 0
        assert line["ratio"] == pytest.approx(line["ours"] / line["reference"], rel=0.05)
        assert line["peers"] == {}
        assert set(line["processes"]) == {"master", "gateway", "mosquitto", "swarm", "reference"}
        for used in line["processes"].values():
            assert used["cpu_seconds"] > 0
            assert used["peak_rss_bytes"] > 1_000_000
    assert min(first["ours"], second["ours"]) <= median["ours"] <= max(first["ours"], second["ours"])
    assert left_behind(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "whole_group"), [(signal.SIGINT, True), (signal.SIGTERM, False)], ids=["ctrl-c", "sigterm"]
)
async def test_an_interrupted_run_stops_all_it_started(folder: Path, number: signal.Signals, whole_group: bool) -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--devices",
        str(DEVICES),
        env=environment(folder),
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    await until(lambda: len(left_behind(folder)) >= 4, SECONDS, "a broker, two stations and a swarm")
    # Ctrl-C on a terminal reaches every process of the group.
    (os.killpg if whole_group else os.kill)(process.pid, number)
    async with asyncio.timeout(SECONDS):
        out, error = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in error
    assert left_behind(folder) == []
    assert list(folder.iterdir()) == []


def test_more_devices_than_files_may_be_open_are_refused_before_anything_starts(folder: Path) -> None:
    finished = subprocess.run(
        [*COMMAND, "--devices", "900"],
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000)),
    )
    assert finished.returncode == 2
    assert "found:   900" in finished.stderr
    assert "--devices 500" in finished.stderr
    assert list(folder.iterdir()) == []
