"""A job for everybody: one outcome from each of a thousand devices, again and again, and a reason for each silence."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.peers.system import ROOT, SECONDS, System, assert_exactly_once, one_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 1000
TIMES = 10


@pytest.fixture(scope="module")
def thousand() -> Iterator[System]:
    with one_site(DEVICES) as system:
        yield system


def test_the_demo_runs_to_its_end_and_explains_the_device_it_lost() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", "demo", "--devices", "20"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=2 * SECONDS,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stderr == ""
    assert "23 expected: 23 ok" in finished.stdout
    assert "3 expected: 2 ok, 1 unreachable" in finished.stdout
    explained = next(line for line in finished.stdout.splitlines() if line.strip().startswith("door-roof\tunreachable"))
    assert "not connected" in explained
    assert "last seen" in explained


def test_ten_jobs_in_a_row_have_exactly_one_outcome_from_each_of_a_thousand_devices(thousand: System) -> None:
    devices = {f"cam-{number:05d}" for number in range(DEVICES)}
    jids = set()
    for _ in range(TIMES):
        finished = thousand.command("run", "cam-*", "test.ping", "--json", status=0)
        outcomes = finished.json("outcome")
        assert len(outcomes) == DEVICES
        assert {outcome["id"] for outcome in outcomes} == devices
        assert {(each["outcome"], each["value"], each["executions"], each["site"]) for each in outcomes} == {
            ("ok", True, 1, "lisbon")
        }
        (summary,) = finished.json("summary")
        assert (summary["expected"], summary["counts"], summary["exit_status"]) == (DEVICES, {"ok": DEVICES}, 0)
        jids.add(summary["jid"])
    executed = thousand.report()["executed"]
    assert {jid: executed[jid] for jid in jids} == {
        jid: {"devices": DEVICES, "executions": DEVICES, "most": 1} for jid in jids
    }
    assert len(jids) == TIMES


def test_a_killed_agent_is_unreachable_at_once_and_the_others_are_ok(thousand: System) -> None:
    for door in ("door-1", "door-2"):
        thousand.add_agent(door, "lisbon", kind="door")
    thousand.present(DEVICES + 2)
    before = thousand.view("central", "/devices/door-1")["devices"][0]["last_seen"]
    thousand.stop("door-1", signal.SIGKILL)
    thousand.present(DEVICES + 1)

    # The expiry is far away: only "at once" ends this job.
    finished = thousand.command("run", "*", "test.ping", "--json", "--expires", "1d", status=1)
    outcomes = {outcome["id"]: outcome for outcome in finished.json("outcome")}
    (summary,) = finished.json("summary")
    assert summary["counts"] == {"ok": DEVICES + 1, "unreachable": 1}
    assert summary["expected"] == len(outcomes) == len(finished.json("outcome")) == DEVICES + 2
    lost = outcomes.pop("door-1")
    assert lost["outcome"] == "unreachable"
    assert lost["seen"] >= before
    assert lost["why"] == "not connected"
    assert lost["executions"] == 0
    assert {outcome["outcome"] for outcome in outcomes.values()} == {"ok"}

    thousand.add_agent("door-1", "lisbon", kind="door")
    thousand.present(DEVICES + 2)
    again = thousand.issue("central", "door-*", "test.ping")
    assert_exactly_once(thousand.ended("central", again), ["door-1", "door-2"])
    assert [thousand.stop(door) for door in ("door-1", "door-2")] == [0, 0]
