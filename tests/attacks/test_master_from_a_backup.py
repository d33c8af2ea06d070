"""A master goes on from a copy of its disk that is older than what it did since: its new jobs run, its old ones do not.

Whoever restores it is honest; what it no longer knows is what makes it look like an attacker who says things again.
"""

from __future__ import annotations

import shutil

import pytest

from tests.peers.system import assert_exactly_once, assert_executed_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


def test_a_restored_master_commands_on_and_nothing_that_it_has_forgotten_runs_twice() -> None:
    with whole_system() as system:
        system.add_master()
        system.add_gateway("lisbon", "central")
        system.join("lisbon")
        cameras = system.add_swarm(2, "lisbon")
        system.add_agent("door-1", "lisbon")
        system.present(3)
        everybody = [*cameras, "door-1"]
        marks = system.folder / "marks"
        system.kill("door-1")
        system.until(lambda: not system.is_here("door-1"), "door-1 has left")
        # At the time of the backup these are open: the second waits for the door, the first for nobody but it.
        pinged = system.issue("central", "*", "test.ping", late="run")
        ordered = system.issue("central", "door-1", "cmd.run", f"/bin/sh -c 'echo old >> {marks}'", late="run")
        system.until(lambda: system.waiting("lisbon", ordered), "the gateway has both")
        system.until(lambda: system.counts("central", pinged) == {"ok": 2}, "the cameras have answered")
        assert system.stop("central") == 0
        shutil.copytree(system.state_of("central"), system.folder / "backup")
        system.restart("central")

        # What the backup does not know: these ended, and another one came and went.
        system.add_agent("door-1", "lisbon")
        assert_exactly_once(system.ended("central", ordered), ["door-1"])
        forgotten = system.issue("central", "*", "test.ping")
        assert_exactly_once(system.ended("central", forgotten), everybody)
        assert_exactly_once(system.ended("central", pinged), everybody)
        system.kill("central")
        shutil.rmtree(system.state_of("central"))
        shutil.copytree(system.folder / "backup", system.state_of("central"))
        system.restart("central")
        system.connected("lisbon")

        system.present(3, "central")
        fresh = system.issue("central", "*", "test.ping")
        assert_exactly_once(system.ended("central", fresh), everybody)
        again = system.issue("central", "door-1", "cmd.run", f"/bin/sh -c 'echo new >> {marks}'")
        assert_exactly_once(system.ended("central", again), ["door-1"])
        assert marks.read_text() == "old\nnew\n"
        report = system.report()
        for jid in (pinged, forgotten, fresh):
            assert_executed_once(report, jid, 2)
