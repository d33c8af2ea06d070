"""What a station was told it still knows after a restart, orderly or not: jobs, devices and sites."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peers.system import System, assert_exactly_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 10
CHANGING = {"connected", "role", "last_seen", "since", "present", "sites", "confirmed", "address", "version"}
"""What a restart rightly changes; ``sites`` of a job says how its sites do now."""


def lines(system: System, *words: str) -> list[dict[str, Any]]:
    """What a command lists as JSON, without what a restart changes."""
    finished = system.command(*words, "--json", status=0)
    kind = words[0].removesuffix("s")
    return [{key: value for key, value in line.items() if key not in CHANGING} for line in finished.json(kind)]


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "killed"])
def test_jobs_devices_and_sites_survive_a_restart_of_every_station(system: System, orderly: bool) -> None:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    devices = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES)
    ids = [
        system.issue("central", "*", "test.ping"),
        system.issue("central", "cam-00001", "test.fail", "out of film"),
        system.issue("lisbon", "cam-0000[1-3]", "test.echo", {"deep": [1, None, "ü"]}),
    ]
    for jid in ids:
        system.ended("central", jid)
    nouns = [("jobs", "list"), ("devices", "list"), ("sites", "list")]
    before = {words: lines(system, *words) for words in nouns}
    outcomes = {jid: list(system.stations["central"].outcomes(jid)) for jid in ids}
    # Both stations are devices too.
    assert [len(before[words]) for words in nouns] == [3, DEVICES + 2, 1]

    for station in ("central", "lisbon"):
        if orderly:
            assert system.stop(station) == 0
        else:
            system.kill(station)
    # Whoever comes back alone knows the same.
    system.restart("central")
    assert {words: lines(system, *words) for words in nouns} == before
    assert {jid: list(system.stations["central"].outcomes(jid)) for jid in ids} == outcomes
    assert [device["present"] for device in system.view("central", "/devices")["devices"]] == [False] * DEVICES
    system.restart("lisbon")
    system.connected("lisbon")
    system.present(DEVICES)
    assert system.report()["executed"].keys() == set(ids)
    assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), devices)
