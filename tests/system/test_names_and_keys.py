"""A site's name belongs to one key: whoever claims it with another is refused, shown, and disturbs nobody."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peers.system import System, assert_exactly_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 5


def key_states(system: System) -> dict[str, str]:
    """The states of the keys of Lisbon, by fingerprint."""
    return {key.fingerprint: key.state for key in system.stations["central"].keys().keys if key.site == "lisbon"}


def start(system: System) -> list[str]:
    system.add_master()
    system.add_gateway("lisbon", "central")
    system.join("lisbon")
    devices = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES)
    return devices


def assert_lets_nobody_in(system: System, station: str) -> None:
    """A gateway that no master has certified makes no token, since there is nothing that one could prove."""
    assert not system.view(station, "/fleet")["joined"]
    refused = system.command("keys", "token", "new", station=station)
    assert refused.status != 0
    assert "has not joined a fleet" in refused.error
    assert system.view(station)["devices"] == 0


def uplink(system: System, name: str) -> dict[str, Any]:
    view: dict[str, Any] = system.view(name)["uplink"]
    return view


def test_a_second_gateway_with_the_name_and_another_key_is_denied_and_the_first_works_on(system: System) -> None:
    devices = start(system)
    system.add_gateway("second", "central", name="lisbon")
    second, first = (system.stations[name].station().fingerprint for name in ("second", "lisbon"))
    system.until(lambda: key_states(system).get(second) == "denied", "the claim is seen")
    assert key_states(system) == {first: "accepted", second: "denied"}

    listed = system.command("keys", "list", status=0).out
    assert any(second in line and "denied" in line for line in listed.splitlines()), listed
    checked = system.command("check").out
    assert second in checked
    assert "claims site lisbon with another key" in checked
    system.until(lambda: "denied" in uplink(system, "second")["last_error"], "the second gateway knows why")
    assert uplink(system, "second")["state"] != "connected"

    # It has nothing that a device would believe, so it lets none in; and accepting it is refused while the first has
    # the name.
    assert_lets_nobody_in(system, "second")
    refused = system.command("keys", "accept", "lisbon", "--fingerprint", second)
    assert refused.status != 0
    assert first in refused.error
    assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), devices)
    assert uplink(system, "lisbon")["state"] == "connected"
    assert {device["id"] for device in system.view("central", "/devices")["devices"]} == set(devices)


def test_a_replacement_takes_the_name_when_the_operator_says_so(system: System) -> None:
    devices = start(system)
    first = system.stations["lisbon"].station().fingerprint
    system.stop("lisbon")
    system.stop("swarm")
    system.add_gateway("replaced", "central", name="lisbon")
    second = system.stations["replaced"].station().fingerprint
    system.until(lambda: key_states(system).get(second) == "denied", "the claim is seen")
    system.command("keys", "reject", "lisbon", "--fingerprint", first, status=0)
    system.command("keys", "accept", "lisbon", "--fingerprint", second, status=0)
    system.connected("lisbon")
    system.certified("replaced")
    # Devices with new identities under the old names: nobody at the new gateway has them.
    system.add_swarm(DEVICES, "replaced")
    system.present(DEVICES)
    assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), devices)


def test_a_pending_site_gets_nothing_and_a_rejected_one_is_cut_off(system: System) -> None:
    devices = start(system)
    system.add_gateway("porto", "central")
    system.until(
        lambda: ("porto", "pending") in [(key.site, key.state) for key in system.stations["central"].keys().keys],
        "porto asks to join",
    )
    assert_lets_nobody_in(system, "porto")
    assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), devices)
    assert system.view("porto", "/jobs")["jobs"] == []

    system.command("keys", "accept", "porto", status=0)
    system.certified("porto")
    system.add_swarm(3, "porto", prefix="porto-", name="others")
    system.present(DEVICES + 3, "central")
    system.command("keys", "reject", "porto", status=0)
    system.until(lambda: "rejected" in uplink(system, "porto")["last_error"], "porto is told")
    assert_exactly_once(system.ended("central", system.issue("central", "*", "test.ping")), devices)
    assert system.view("porto", "/jobs")["jobs"] == []
