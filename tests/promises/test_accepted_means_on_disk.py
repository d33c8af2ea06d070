"""The story: what anybody was told has been accepted survives a SIGKILL in the very next moment.

An operator is told a jid only when the job is on the master's disk. A device is told that its return is confirmed only
when the gateway has it on disk; until then it keeps the return and sends it again. A master confirms to a site only
what it has on disk itself; until then the site keeps it.
"""

from __future__ import annotations

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 50
IDS = [f"cam-{number:05d}" for number in range(DEVICES)]
TIMES = 2


def test_a_job_whose_jid_was_told_is_there_after_a_kill(site: System) -> None:
    for _ in range(TIMES):
        jid = site.issue("central", "cam-*", "test.ping")
        site.kill("central")
        site.restart("central")
        assert_exactly_once(site.ended("central", jid), IDS)
        assert_executed_once(site.report(), jid, DEVICES)


def test_a_key_that_was_accepted_is_accepted_after_a_kill(site: System) -> None:
    site.kill("central")
    site.restart("central")
    site.connected("lisbon")
    assert [(key.site, key.state) for key in site.stations["central"].keys().keys] == [("lisbon", "accepted")]
    site.command("keys", "reject", "lisbon", status=0)
    site.kill("central")
    site.restart("central")
    assert [(key.site, key.state) for key in site.stations["central"].keys().keys] == [("lisbon", "rejected")]
    assert not site.site_state("lisbon")
    site.command("keys", "accept", "lisbon", "--fingerprint", site.stations["lisbon"].station().fingerprint, status=0)


def test_a_cancel_that_was_answered_holds_after_a_kill(site: System) -> None:
    site.stop("lisbon")
    site.until(lambda: not site.site_state("lisbon"), "the site is dark")
    jid = site.issue("central", "cam-*", "test.ping", late="run", expires_seconds=3600)
    assert site.stations["central"].cancel(jid).cancelled
    site.kill("central")
    site.restart("central")
    assert_exactly_once(site.ended("central", jid), IDS, "cancelled")


def test_a_return_the_gateway_did_not_confirm_is_given_again(site: System) -> None:
    """The gateway dies while returns stream in: some are on its disk, some are not, and none is missing."""
    jid = site.issue("central", "cam-*", "test.ping")
    site.until(lambda: site.counts("lisbon", jid), "the first outcomes are on the gateway's disk")
    site.kill("lisbon")
    site.restart("lisbon")
    assert_exactly_once(site.ended("lisbon", jid), IDS)
    assert_exactly_once(site.ended("central", jid), IDS)
    assert_executed_once(site.report(), jid, DEVICES)


def test_an_outcome_that_was_shown_at_the_master_is_shown_after_a_kill(site: System) -> None:
    jid = site.issue("central", "cam-*", "test.sleep", 1)
    shown = set()
    for line in site.stations["central"].watch(jid):
        if (outcome := getattr(line, "outcome", None)) is not None:
            shown.add((getattr(line, "id", ""), outcome))
        if shown:
            break
    site.kill("central")
    site.restart("central")
    ended = site.ended("central", jid)
    assert shown <= {(outcome.id, outcome.outcome) for outcome in ended.outcomes}
    assert_exactly_once(ended, IDS)


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
