"""Power is cut at any sync of the real writer, with what was not synced lost, reordered or torn: no committed row is.

The trace of one run is recorded; each state that the disk may have been in is laid out and opened as a station does.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from device_agent.clock import Clock
from gateway.store.opening import open_store, set_aside
from tests.peers.database import look
from tests.peers.power_cut import Disk, PtraceNotAllowed, Step, record

ROWS = 150
STATES = 240
SEED = 20261122
LIES = 20
LYING_STEPS = 400
SHARES = (0.0, 0.5, 0.5, 0.9, 0.1, 1.0)
"""How much of what was not synced is on disk: nothing, some of it, all of it."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Step]]:
    folder = tmp_path_factory.mktemp("traced")
    writer = [sys.executable, "-m", "tests.peers.traced_writer"]
    words = [*writer, str(folder / "station.sqlite"), str(folder / "acknowledged"), str(ROWS)]
    try:
        return folder, record(folder.with_name("trace"), words)
    except PtraceNotAllowed as why:
        pytest.skip(f"nobody may trace a process here: {why}")


def test_the_trace_has_what_a_writer_does(trace: tuple[Path, list[Step]]) -> None:
    folder, steps = trace
    calls = [(step.call, Path(step.path).name) for step in steps if Path(step.path).parent == folder]
    assert calls.count(("append", "acknowledged")) == ROWS
    assert calls.count(("sync", "station.sqlite-wal")) > ROWS // 3
    assert calls.count(("sync", "station.sqlite")) > 3
    assert ("cut", "station.sqlite-wal") in calls
    assert ("unlink", "station.sqlite-wal") in calls


def test_no_row_is_missing_whose_commit_had_returned(trace: tuple[Path, list[Step]], tmp_path: Path) -> None:
    folder, steps = trace
    chosen = random.Random(SEED)
    places = [place for place, step in enumerate(steps) if step.call in ("sync", "unlink") and is_store(step, folder)]
    cuts = sorted((chosen.choice(places), number) for number in range(STATES - len(places)))
    cuts = sorted([*cuts, *((place, STATES + number) for number, place in enumerate(places))])
    disk, acknowledged, at = Disk(folder), set[str](), 0
    for place, number in cuts:
        while at < place:
            step = steps[at]
            disk.take(step)
            if step.call == "append" and step.path == str(folder / "acknowledged"):
                acknowledged.add(step.content.decode().strip())
            at += 1
        share = SHARES[number % len(SHARES)]
        laid_out = tmp_path / f"cut-{place}-{number}"
        disk.lay_out(laid_out, random.Random(number), share)
        assert_all_are_there(laid_out / "station.sqlite", acknowledged, f"cut at step {place}, {share} of it on disk")
    assert len(acknowledged) > ROWS // 2


def test_a_disk_that_lies_about_flushes_of_the_log_is_noticed(trace: tuple[Path, list[Step]], tmp_path: Path) -> None:
    """Whatever rows are missing that were acknowledged before the newest witness: the store says that it went back."""
    folder, steps = trace
    witness, log = str(folder / "station.sqlite.witness"), str(folder / "station.sqlite-wal")
    wals = [place for place, step in enumerate(steps) if step.call == "sync" and step.path == log]
    noticed = 0
    for number, lies_from in enumerate(wals[:: max(1, len(wals) // LIES)]):
        disk, acknowledged, certain = Disk(folder), set[str](), set[str]()
        ends = min(lies_from + LYING_STEPS, len(steps))
        for place, step in enumerate(steps[:ends]):
            if place >= lies_from and step.path == log and step.call == "sync":
                continue
            # A checkpoint would carry the log home: then nothing is missing.
            if place >= lies_from and step.path == str(folder / "station.sqlite"):
                break
            disk.take(step)
            if step.call == "append" and step.path == str(folder / "acknowledged"):
                acknowledged.add(step.content.decode().strip())
            if step.call == "sync" and step.path == witness:
                certain = set(acknowledged)
        laid_out = tmp_path / f"lie-{number}"
        disk.lay_out(laid_out, random.Random(number), 0.0)
        path = laid_out / "station.sqlite"
        open_store(path, Clock())
        found = {key for (key,) in look(path, "SELECT key FROM station WHERE key LIKE 'row-%'")}
        said = look(path, "SELECT value FROM station WHERE key = 'trust'")
        if certain - found:
            assert said, f"lie from step {lies_from}: {sorted(certain - found)} missing"
            assert '"went_back"' in said[0][0]
            noticed += 1
    assert noticed > 3


def is_store(step: Step, folder: Path) -> bool:
    return Path(step.path).parent == folder and Path(step.path).name.startswith("station.sqlite")


def assert_all_are_there(path: Path, acknowledged: set[str], what: str) -> None:
    open_store(path, Clock())
    assert look(path, "PRAGMA integrity_check") == [("ok",)], what
    found = {key for (key,) in look(path, "SELECT key FROM station WHERE key LIKE 'row-%'")}
    assert acknowledged <= found, f"{what}: {sorted(acknowledged - found)} missing"
    said = look(path, "SELECT value FROM station WHERE key IN ('damage', 'trust')")
    assert set_aside(path) == [], f"{what}: {said}"
    # An honest power cut leaves the witness behind the store, which is no loss.
    assert said == [], what
