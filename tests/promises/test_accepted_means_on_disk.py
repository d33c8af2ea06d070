"""The story: what anybody was told has been accepted survives a SIGKILL in the very next moment.

An operator is told a jid only when the job is on the master's disk. A device is told that its return is confirmed only
when the gateway has it on disk; until then it keeps the return and sends it again. A master confirms to a site only
what it has on disk itself; until then the site keeps it.
"""

from __future__ import annotations

import signal

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DEVICES = 100
TIMES = 5


def start(system: System) -> list[str]:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    devices = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES)
    return devices


def test_a_job_whose_jid_was_told_is_there_after_a_kill(system: System) -> None:
    devices = start(system)
    for _ in range(TIMES):
        jid = system.issue("central", "*", "test.ping")
        system.kill("central")
        system.restart("central")
        assert_exactly_once(system.ended("central", jid), devices)
        assert_executed_once(system.report(), jid, DEVICES)


def test_a_key_that_was_accepted_is_accepted_after_a_kill(system: System) -> None:
    start(system)
    system.kill("central")
    system.restart("central")
    system.connected("lisbon")
    assert [(key.site, key.state) for key in system.stations["central"].keys().keys] == [("lisbon", "accepted")]
    system.command("keys", "reject", "lisbon", status=0)
    system.kill("central")
    system.restart("central")
    assert [(key.site, key.state) for key in system.stations["central"].keys().keys] == [("lisbon", "rejected")]
    assert not system.site_state("lisbon")


def test_a_cancel_that_was_answered_holds_after_a_kill(system: System) -> None:
    devices = start(system)
    system.stop("lisbon")
    system.until(lambda: not system.site_state("lisbon"), "the site is dark")
    jid = system.issue("central", "*", "test.ping", late="run", expires_seconds=3600)
    assert system.stations["central"].cancel(jid).cancelled
    system.kill("central")
    system.restart("central")
    assert_exactly_once(system.ended("central", jid), devices, "cancelled")


def test_a_return_the_gateway_did_not_confirm_is_given_again(system: System) -> None:
    """The gateway dies while returns stream in: some are on its disk, some are not, and none is missing."""
    devices = start(system)
    for _ in range(TIMES):
        jid = system.issue("central", "*", "test.ping")
        system.until(lambda: system.counts("lisbon", jid), "the first outcomes are on the gateway's disk")  # noqa: B023 - called at once
        system.kill("lisbon")
        system.restart("lisbon")
        assert_exactly_once(system.ended("lisbon", jid), devices)
        assert_exactly_once(system.ended("central", jid), devices)
        assert_executed_once(system.report(), jid, DEVICES)


def test_an_outcome_that_was_shown_at_the_master_is_shown_after_a_kill(system: System) -> None:
    devices = start(system)
    jid = system.issue("central", "*", "test.sleep", 1)
    shown = set()
    for line in system.stations["central"].watch(jid):
        if (outcome := getattr(line, "outcome", None)) is not None:
            shown.add((getattr(line, "id", ""), outcome))
        if shown:
            break
    system.kill("central")
    system.restart("central")
    ended = system.ended("central", jid)
    assert shown <= {(outcome.id, outcome.outcome) for outcome in ended.outcomes}
    assert_exactly_once(ended, devices)


def test_a_real_agent_gives_its_return_again_after_it_was_killed_itself(system: System) -> None:
    """What ran is in the agent's own journal: it is answered from there, and not run again."""
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    system.add_agent("door-1", "lisbon")
    system.present(1)
    marks = system.folder / "marks"
    jid = system.issue("central", "door-1", "cmd.run", f"echo ran >> {marks}")
    system.until(marks.exists, "the command has run")
    system.kill("lisbon")
    system.kill("door-1")
    system.add_agent("door-1", "lisbon")
    system.restart("lisbon")
    (outcome,) = system.ended("central", jid).outcomes
    assert outcome.outcome in {"ok", "unknown"}
    assert marks.read_text() == "ran\n"


def test_the_first_signal_after_the_answer_is_not_too_early(system: System) -> None:
    """SIGTERM instead of SIGKILL, in the same moment: an orderly stop is no worse."""
    devices = start(system)
    jid = system.issue("central", "*", "test.ping")
    assert system.stop("central", signal.SIGTERM) == 0
    system.restart("central")
    assert_exactly_once(system.ended("central", jid), devices)
