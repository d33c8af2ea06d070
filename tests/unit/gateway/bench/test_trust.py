"""The benchmark of proofs and seals: both sides do the same work, all of it is proven, and else there is no figure."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from gateway.bench import trust as measuring
from gateway.bench import trust_product, trust_reference
from gateway.bench.figures import Measured
from gateway.bench.trust import CHAINS, FRAMES, MEANING, Trust, medians, objects, show
from gateway.bench.trust_fleet import Fleet
from gateway.bench.trust_process import Side
from gateway.bench.trust_turn import Turn, Watch
from gateway.cli.output import Output
from tests.peers.waiting import until

DEVICES = 7
SECONDS = 60.0
COMMAND = [sys.executable, "-m", "gateway.cli.main", "bench", "trust"]


class ScriptedSide(Side):
    """Does nothing and says that all went well, but for one part."""

    peak_rss_bytes = 1 << 20

    def __init__(self, name: str, cpu_seconds: float, lost: str = "") -> None:
        super().__init__(name, [])
        self.asked: list[dict[str, Any]] = []
        self._seconds = cpu_seconds
        self._lost = lost

    def ask(self, **asked: Any) -> Mapping[str, Any]:
        self.asked.append(asked)
        parts = {
            part: {"ok": objects(part, asked["count"]) - (part == self._lost), "cpu_seconds": self._seconds}
            for part in CHAINS.get(asked.get("chain", ""), ())
        }
        return {"parts": parts, "sizes": {"request": 1}}


def quiet() -> Output:
    return Output(io.StringIO(), io.StringIO(), {}, Clock())


def test_a_run_prints_each_part_of_each_repeat_and_the_worst_median_last() -> None:
    finished = subprocess.run(
        [*COMMAND, "--devices", str(DEVICES), "--repeat", "2", "--json"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [line["part"] for line in lines[: 2 * len(MEANING)]] == [*MEANING, *MEANING]
    assert {line["part"] for line in lines[2 * len(MEANING) :]} == set(MEANING)
    assert [line["median"] for line in lines] == [False] * 2 * len(MEANING) + [True] * len(MEANING)
    for line in lines:
        assert line["bench"] == "trust"
        assert line["params"] == {"devices": DEVICES, "repeat": 2, "frames": FRAMES}
        assert line["ok"] == objects(line["part"], DEVICES)
        assert line["ratio"] == pytest.approx(line["ours"] / line["reference"], rel=0.05)
        assert line["ours_microseconds"] == pytest.approx(line["ours"] / line["ok"] * 1e6, rel=0.05)
        assert line["peers"] == {}
        assert set(line["processes"]) == {"outstation", "reference"}
        for used in line["processes"].values():
            assert used["cpu_seconds"] >= 0
            assert used["peak_rss_bytes"] > 1_000_000
    assert lines[-1]["ratio"] == max(line["ratio"] for line in lines if line["median"])


@pytest.mark.parametrize("chain", CHAINS)
def test_both_sides_prove_everything_of_a_turn_and_say_so(chain: str) -> None:
    ours, reference = Watch(), trust_reference.Watch()
    known = trust_product.chains(Fleet(Clock()))
    for one in CHAINS:
        known[one](Turn(2, 1, first=True), ours)
    bare = trust_reference.Bare(ours.sizes)
    ours.spent.clear()
    for turn in (Turn(3, 2, first=True), Turn(2, 2, first=False)):
        known[chain](turn, ours)
        getattr(bare, chain)(trust_reference.Turn(turn.count, turn.frames, turn.first), reference)
    for watch in (ours, reference):
        assert set(watch.spent) == set(CHAINS[chain])
        for part, spent in watch.spent.items():
            assert spent["ok"] == 5 * (2 if part.startswith("frame_") else 1)
            assert spent["cpu_seconds"] > 0


@pytest.mark.parametrize("lost", MEANING)
@pytest.mark.parametrize("whose", [0, 1])
def test_without_every_proof_of_each_side_there_is_no_figure(lost: str, whose: int) -> None:
    sides = [ScriptedSide("outstation", 0.2), ScriptedSide("reference", 0.1)]
    sides[whose] = ScriptedSide("a liar", 0.1, lost)
    trust = Trust(sides[0], sides[1], DEVICES, quiet())
    trust.start()
    with pytest.raises(StationFailed, match="not everything was proven") as failed:
        trust.repeat()
    assert failed.value.exit_status == 1
    assert failed.value.where == f"{lost}, a liar"
    assert failed.value.allowed == f"{objects(lost, DEVICES)} ok"


def test_the_sides_take_turns_until_every_device_had_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "TURN", 3)
    ours, reference = ScriptedSide("outstation", 0.2), ScriptedSide("reference", 0.1)
    trust = Trust(ours, reference, DEVICES, quiet())
    trust.start()
    assert reference.asked[0] == {"sizes": {"request": 1}}
    del ours.asked[:], reference.asked[:]
    found = trust.repeat()
    assert ours.asked == reference.asked
    turns = [(asked["count"], asked["first"]) for asked in ours.asked if asked["chain"] == "revocation"]
    assert turns == [(3, True), (3, False), (1, False)]
    assert found["accept"].ours == pytest.approx(0.6)
    assert found["accept"].ratio == pytest.approx(2.0)


def test_people_see_what_each_part_costs_one_device() -> None:
    first = {part: Measured(objects(part, 10), 0.002, 0.001, {}) for part in MEANING}
    second = {**first, "enroll": Measured(10, 0.004, 0.001, {})}
    out = io.StringIO()
    show(Output(out, io.StringIO(), {}, Clock()), 10, [first, second])
    title, heading, enroll, *others = out.getvalue().splitlines()
    assert title == "CPU microseconds for one device of 10, 2 times, everything proven"
    assert heading.split() == ["PART", "OURS", "REFERENCE", "RATIO", "WHAT"]
    assert enroll.split()[:6] == ["enroll", "300.0", "(200.0–400.0)", "100.0", "(100.0–100.0)", "3.00"]
    assert [line.split()[0] for line in others[: len(MEANING) - 1]] == list(MEANING)[1:]
    assert medians([first, second])[-1][0] == "enroll"


def test_the_reference_imports_nothing_but_pythons_own_library_and_the_primitives() -> None:
    tree = ast.parse(Path(trust_reference.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "cryptography"}


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("", "it has ended"),
        ("input()", "it has ended"),
        ('input(); print(\'{"error": "a bad seal"}\')', "a bad seal"),
    ],
)
def test_a_side_that_fails_is_named(script: str, found: str) -> None:
    with (
        pytest.raises(StationFailed, match="left failed, so there is no figure") as failed,
        Side("left", ["-I", "-c", script]) as side,
    ):
        side.ask(chain="join", count=1)
    assert str(failed.value.found).startswith(found)


def test_too_few_devices_to_put_one_out_are_a_mistake() -> None:
    finished = subprocess.run(
        [*COMMAND, "--devices", "1"], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (finished.returncode, finished.stdout) == (2, "")


@pytest.mark.parametrize(
    ("number", "whole_group"), [(signal.SIGINT, True), (signal.SIGTERM, False)], ids=["ctrl-c", "sigterm"]
)
async def test_an_interrupted_run_stops_both_sides(number: signal.Signals, whole_group: bool) -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--devices", "1000000", "--json", stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    watched = psutil.Process(process.pid)
    await until(lambda: len(watched.children()) == 2, SECONDS, "both sides run")
    sides = watched.children()
    # Ctrl-C on a terminal reaches every process of the group.
    (os.killpg if whole_group else os.kill)(process.pid, number)
    async with asyncio.timeout(SECONDS):
        out, error = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in error
    await until(lambda: not any(side.is_running() for side in sides), SECONDS, "both sides have ended")
