"""The story: no device that was expected is missing at the end; each has one outcome, and silence has a reason.

One job finds a device that is here, one that was killed, one that is asleep past its limit, one that fails, one that
does not know the function, one that has too much to do, and one whose site is dark. Each is told apart, says why, and
says when it was last heard where that is the question.
"""

from __future__ import annotations

import signal

import pytest

from tests.peers.system import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


def start(system: System) -> None:
    system.add_master()
    for site in ("lisbon", "porto"):
        system.add_gateway(site, "central")
        system.join(site)
    system.add_agent("here", "lisbon")
    system.add_agent("killed", "lisbon")
    system.add_agent("stopped", "lisbon")
    system.add_agent("far-1", "porto")
    system.add_agent("far-2", "porto")
    system.present(5, "central")
    system.stop("killed", signal.SIGKILL)
    assert system.stop("stopped") == 0
    system.present(3, "central")


def test_each_device_ends_in_one_outcome_with_its_reason(system: System) -> None:
    start(system)
    told = system.command("run", "*", "test.ping", "--expires", "30s", status=1)
    lines = {line.split("\t")[0]: line for line in told.out.splitlines()}
    assert lines["here"].split("\t")[1] == "ok"
    for device in ("killed", "stopped"):
        assert "unreachable" in lines[device]
        assert "not connected" in lines[device]
        assert "last seen" in lines[device]
    assert "5 expected: 3 ok, 2 unreachable" in told.error

    system.stop("porto")
    system.until(lambda: not system.site_state("porto"), "porto is dark")
    finished = system.command("run", "*", "test.ping", "--json", "--expires", "15s", status=1)
    outcomes = {outcome["id"]: outcome for outcome in finished.json("outcome")}
    assert len(finished.json("outcome")) == len(outcomes)
    assert {device: outcome["outcome"] for device, outcome in outcomes.items()} == {
        "here": "ok",
        "killed": "unreachable",
        "stopped": "unreachable",
        "far-1": "site_dark",
        "far-2": "site_dark",
    }
    here = outcomes.pop("here")
    assert (here["value"], here["why"]) == (True, "")
    for outcome in outcomes.values():
        assert outcome["why"]
        assert outcome["seen"] is not None
        assert outcome["executions"] == 0
    (summary,) = finished.json("summary")
    assert (summary["expected"], sum(summary["counts"].values())) == (5, 5)


@pytest.mark.parametrize(
    ("words", "outcome", "why"),
    [
        (["test.fail", "out of film"], "failed", "out of film"),
        (["no.such"], "refused", "no.such"),
        (["test.sleep", "soon"], "refused", "length"),
        (["test.ping", "too", "many"], "refused", "argument"),
        (["cmd.run", "exit 3"], "failed", ""),
        (["test.sleep", "30", "--limit", "1s"], "timed_out", "1 s"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_device_cannot_do_is_an_outcome_too(one_door: System, words: list[str], outcome: str, why: str) -> None:
    finished = one_door.command("run", "door-1", *words, "--json", status=1)
    (record,) = finished.json("outcome")
    assert record["outcome"] == outcome
    assert why in record["why"]
    assert record["retcode"] != 0


def test_more_jobs_than_a_device_holds_are_refused_by_name(one_door: System) -> None:
    jids = [one_door.issue("central", "door-1", "test.sleep", 15) for _ in range(80)]
    words = [one_door.ended("central", jid).outcomes[0] for jid in jids[-5:]]
    assert {outcome.outcome for outcome in words} == {"refused"}
    assert all("busy" in (outcome.why or "") for outcome in words)
    for jid in jids[4:-5]:
        one_door.stations["central"].cancel(jid) if one_door.job("central", jid).state == "open" else None
    for jid in jids:
        assert len(one_door.ended("central", jid).outcomes) == 1


def test_a_target_that_nobody_matches_is_said_and_is_no_success(one_door: System) -> None:
    finished = one_door.command("run", "nobody-*", "test.ping", status=1)
    assert "no device matched nobody-*" in finished.error
