"""A gateway walks its list of masters until one answers, and takes another list while it runs."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.peers.broker import free_port
from tests.peers.system import System, assert_exactly_once

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DEVICES = 3


def uplink(system: System) -> dict[str, Any]:
    view: dict[str, Any] = system.view("lisbon")["uplink"]
    return view


def connected_to(system: System, master: str) -> None:
    address = system.address(master)["address"]

    def is_there() -> bool:
        now = uplink(system)
        return (now["state"], now["master"]) == ("connected", address)

    system.until(is_there, f"lisbon is with {master}")


def test_a_list_is_walked_past_what_does_not_answer_and_reread_at_sighup(system: System) -> None:
    system.add_master("north")
    system.add_master("south")
    nobody = {"address": f"tcp://127.0.0.1:{free_port()}", "key": system.address("north")["key"]}
    system.add_gateway("lisbon", masters=[nobody, system.address("south")])
    system.join("lisbon", "south")
    connected_to(system, "south")
    assert system.view("north", "/keys")["keys"] == []
    devices = system.add_swarm(DEVICES, "lisbon")
    system.present(DEVICES, "lisbon", "south")
    assert_exactly_once(system.ended("south", system.issue("south", "*", "test.ping")), devices)

    system.change("lisbon", masters=[system.address("north"), system.address("south")])
    system.children["lisbon"].process.send_signal(signal.SIGHUP)
    # Its certificate by the one is enough for the other: nobody has to accept it again.
    connected_to(system, "north")
    assert [(key.site, key.state) for key in system.stations["north"].keys().keys] == [("lisbon", "accepted")]
    system.present(DEVICES, "north")
    assert_exactly_once(system.ended("north", system.issue("north", "*", "test.ping")), devices)

    # A list that is wrong changes nothing, and the next one has the site when the first dies.
    before = uplink(system)["since"]
    system.change("lisbon", masters=[{"address": "south", "key": "?"}])
    system.children["lisbon"].process.send_signal(signal.SIGHUP)
    system.until(lambda: "settings not reloaded" in system.log("lisbon"), "the mistake is in the log")
    assert (uplink(system)["state"], uplink(system)["since"]) == ("connected", before)
    system.kill("north")
    connected_to(system, "south")
    system.present(DEVICES, "south")
    assert_exactly_once(system.ended("south", system.issue("south", "*", "test.ping")), devices)
