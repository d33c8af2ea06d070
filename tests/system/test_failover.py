"""Two masters, one gateway: whichever of them is killed, the other has the site at once, and nothing is lost.

``OUTSTATION_FLIPS`` says how often in a row they take over from each other; the long form is 50 (``-k flips``).
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.peers.system import System, assert_exactly_once, assert_executed_once

FLIPS = int(os.environ.get("OUTSTATION_FLIPS", "3"))
DEVICES = 50

pytestmark = [pytest.mark.system, pytest.mark.timeout(180 + 15 * FLIPS)]

RULES: dict[str, Any] = {"master_type": "failover", "master_alive_interval": 3.0, "random_reauth_delay": 0.2}


def two_masters(system: System, **rules: Any) -> list[str]:
    """Masters north and south with the site lisbon, which north feeds on; the ids of its devices."""
    system.add_master("north")
    system.add_master("south")
    system.add_gateway("lisbon", "north", "south", **{**RULES, **rules})
    system.join("lisbon", "north")
    # Its certificate by the one is enough for the other.
    system.connected("lisbon", "south")
    devices = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES, "lisbon", "north", "south")
    roles(system, north="active", south="standby")
    return devices


def roles(system: System, **wanted: str) -> None:
    """Wait until the gateway and its masters agree on who is what; empty for a master that is away."""
    addresses = {system.address(name)["address"]: name for name in wanted if wanted[name]}

    def agreed() -> bool:
        links = system.view("lisbon")["uplink"]["links"]
        if {addresses.get(link["address"], ""): link["role"] for link in links if link["role"]} != {
            name: role for name, role in wanted.items() if role
        }:
            return False
        return all(system.stations[name].site("lisbon").role == role for name, role in wanted.items() if role)

    system.until(agreed, f"the roles are {wanted}")


def since(system: System, master: str) -> float:
    """Since when the gateway has its link to a master."""
    address = system.address(master)["address"]
    (found,) = [link["since"] for link in system.view("lisbon")["uplink"]["links"] if link["address"] == address]
    return float(found)


def runs_at(system: System, master: str, devices: list[str], fun: str = "test.ping", *arg: Any) -> None:
    """A job that is given to a master runs once on each device, and this master has every outcome."""
    jid = system.issue(master, "*", fun, *arg)
    assert_exactly_once(system.ended(master, jid), devices)
    assert_executed_once(system.report(), jid, len(devices))


@pytest.fixture
def failback(system: System) -> list[str]:
    return two_masters(system, master_failback=True, master_failback_interval=2.0)


def test_a_master_killed_under_load_is_followed_by_the_other_and_gets_the_site_back(
    system: System, failback: list[str]
) -> None:
    standing_by = since(system, "south")
    given = [system.issue("north", "*", "test.sleep", seconds) for seconds in (0.5, 1, 2)]
    system.until(lambda: system.counts("north", given[0]), "the first outcomes are at north")
    # What the gateway orders itself goes on, whoever is above.
    own = [system.issue("lisbon", "*", "test.sleep", 1) for _ in range(2)]
    system.kill("north")
    # It is told of by the link that stands by, before anybody has noticed that north is gone.
    runs_at(system, "south", failback, "test.sleep", 1)
    roles(system, north="", south="active")
    assert since(system, "south") == standing_by, "the switch needs no new connection"
    for jid in own:
        assert_exactly_once(system.ended("lisbon", jid), failback)
    system.until(lambda: system.view("lisbon")["spool_pending"] == 0, "south has confirmed everything")

    system.restart("north")
    roles(system, north="active", south="standby")
    assert since(system, "south") == standing_by
    runs_at(system, "north", failback)
    # What it had given before it was killed is its own still, whoever had the outcomes first.
    for jid in given:
        assert_exactly_once(system.ended("north", jid), failback)
        assert_executed_once(system.report(), jid, DEVICES)


def test_flips_in_a_row(system: System) -> None:
    devices = two_masters(system)
    here, there = "north", "south"
    for _ in range(FLIPS):
        system.kill(here)
        runs_at(system, there, devices)
        roles(system, **{here: "", there: "active"})
        system.restart(here)
        roles(system, **{here: "standby", there: "active"})
        here, there = there, here
    system.until(lambda: system.view("lisbon")["spool_pending"] == 0, "everything is confirmed")
    assert [reason for link, reason in system.refusals("lisbon") if link == "uplink"] == []
    for master in ("north", "south"):
        assert {"gap", "wrong_epoch"}.isdisjoint(reason for _, reason in system.refusals(master))


def test_with_both_masters_away_the_site_works_on_and_whoever_is_back_first_gets_everything(system: System) -> None:
    devices = two_masters(system)
    system.kill("north")
    system.kill("south")
    jid = system.issue("lisbon", "*", "test.ping")
    assert_exactly_once(system.ended("lisbon", jid), devices)
    system.until(lambda: system.view("lisbon")["uplink"]["state"] != "connected", "the gateway has noticed")
    assert system.view("lisbon")["spool_pending"] > 0
    system.restart("south")
    system.until(lambda: system.counts("south", jid), "south has heard of it")
    assert_exactly_once(system.ended("south", jid), devices)
    system.restart("north")
    roles(system, north="standby", south="active")
    finished = system.command("sites", "show", "lisbon", station="north", status=0)
    assert "standby" in finished.out
    finished = system.command("check", "--all", station="lisbon", status=0)
    assert f"standing by: {system.address('north')['address']}" in finished.out


def test_the_two_known_issues_of_salts_failover_are_not_here(system: System) -> None:
    """A job runs on every master of the cluster; and one that a hot minion is not connected to has its jobs in vain."""
    devices = two_masters(system, master_type="hot")
    for master in ("north", "south"):
        runs_at(system, master, devices)
    system.kill("south")
    roles(system, north="active", south="")
    system.restart("south")
    # The site has not found it again yet: the job waits for it there, and nobody else need be asked.
    runs_at(system, "south", devices)
    runs_at(system, "north", devices)
