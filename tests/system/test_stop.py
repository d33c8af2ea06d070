"""SIGTERM ends every program in order with status 0, whatever is under way; and nothing outlives its station."""

from __future__ import annotations

import os
import signal

import pytest

from tests.peers.processes import processes, runs
from tests.peers.system import SECONDS, System, assert_exactly_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 10
FAILED, NOT_RUNNING = 1, 7
EVERYTHING = ("central", "lisbon", "swarm", "door-1")


def start(system: System) -> list[str]:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    devices = system.add_swarm(DEVICES, "lisbon")
    system.add_agent("door-1", "lisbon")
    system.present(DEVICES + 1)
    return [*devices, "door-1"]


def broker(system: System, station: str = "lisbon") -> int:
    pid: int = system.view(station)["broker"]["pid"]
    assert runs(pid)
    return pid


@pytest.mark.parametrize(
    ("order", "number"),
    [(EVERYTHING, signal.SIGTERM), (tuple(reversed(EVERYTHING)), signal.SIGINT)],
    ids=["SIGTERM from the top", "SIGINT from the bottom"],
)
def test_every_program_ends_with_status_0_while_jobs_run_and_wait(
    system: System, order: tuple[str, ...], number: signal.Signals
) -> None:
    start(system)
    system.occupy("lisbon", "*", DEVICES + 1, 60)
    system.issue("central", "*", "test.sleep", 60)
    system.issue("central", "*", "test.ping", late="run", expires_seconds=3600)
    pid = broker(system)
    ended = {name: system.stop(name, number) for name in order}
    assert ended == dict.fromkeys(order, 0), {name: system.log(name)[-3000:] for name in order if ended[name]}
    assert not runs(pid)
    assert processes(str(system.folder)) == []


def test_whoever_watches_a_job_when_its_master_stops_is_told_how_to_go_on(system: System) -> None:
    devices = start(system)
    words = ["--socket", str(system.socket_of("central")), "run", "*", "test.sleep", "2"]
    system.start("somebody", words)
    system.until(lambda: system.stations["central"].jobs(1), "the job is known")
    jid = system.stations["central"].jobs(1)[0].jid
    assert system.stop("central") == 0
    assert system.children.pop("somebody").process.wait(SECONDS) == NOT_RUNNING
    assert f"outstation jobs watch {jid}" in system.log("somebody")
    system.restart("central")
    assert_exactly_once(system.ended("central", jid), devices)


def test_the_broker_of_a_killed_gateway_dies_with_it_and_the_port_is_free_for_the_next(system: System) -> None:
    devices = start(system)
    pid = broker(system)
    system.kill("lisbon")
    system.until(lambda: not runs(pid), "the broker has ended")
    system.restart("lisbon")
    assert broker(system) != pid
    system.present(DEVICES + 1)
    assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), devices)


def test_a_gateway_whose_broker_ends_by_itself_ends_too_and_says_why(system: System) -> None:
    system.add_gateway("lisbon", masters=[])
    os.kill(broker(system), signal.SIGKILL)
    # Whoever started it starts it again, broker and all.
    assert system.children.pop("lisbon").process.wait(SECONDS) == FAILED
    assert "the broker ended by itself" in system.log("lisbon")
    assert "Traceback" not in system.log("lisbon")
