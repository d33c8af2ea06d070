"""A site that never sees the master which accepted it works alone; whichever master appears one day knows all of it.

A site of two cameras, one let in by a token and one by its fingerprint.
"""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

from tests.peers.broker import free_port
from tests.peers.system import System, assert_exactly_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

CAMERAS = ["cam-1", "cam-2"]
FINGERPRINT = re.compile(r"joins as did=\w+ fingerprint=([\w-]+)")


def test_cameras_join_and_work_without_any_master_and_the_first_that_appears_commands_them_at_once() -> None:
    with whole_system() as system:
        south = f"tcp://127.0.0.1:{free_port()}"
        accepted_by_bundle(system, south)
        join_by_token_and_by_fingerprint(system)
        jid = system.issue("lisbon", "*", "test.ping")
        assert_exactly_once(system.ended("lisbon", jid), CAMERAS)
        uplink = system.view("lisbon")["uplink"]
        assert (uplink["state"] != "connected", uplink["masters"][-1]) == (True, south)

        # The other master of the root list has never heard of that site.
        system.add_station("south", "master", {"sites": {"listen": south}})
        system.present(2, "south")
        order = system.issue("south", "*", "cmd.run", "echo here")
        assert_exactly_once(system.ended("south", order), CAMERAS)
        assert_exactly_once(system.ended("south", jid), CAMERAS)
        [site] = system.stations["south"].keys().keys
        assert (site.site, site.state) == ("lisbon", "accepted")
        own = {key["name"]: key for key in system.view("lisbon", "/keys?kind=device")["keys"]}
        for name, proof in zip(CAMERAS, ("token", "fingerprint"), strict=True):
            assert own[name]["proof"] == proof
            [known] = system.view("south", f"/devices/{name}")["devices"]
            for fact in ("did", "fingerprint", "state", "accepted_by", "accepted_at"):
                assert known[fact] == own[name][fact]
            shown = system.command("devices", "show", name, station="south", status=0).out
            assert f"by {own[name]['accepted_by']}" in shown


def accepted_by_bundle(system: System, south: str) -> None:
    """A master certifies the site by what was carried to it, and is never seen again, nor by the site at all."""
    folder = system.folder
    system.add_master("north")
    system.fleet.add_master("south", system.state_of("south"), address=south)
    system.publish_fleet("north")
    broker: dict[str, Any] = {"host": "127.0.0.1", "port": free_port(), "enroll_port": free_port()}
    places = {"state_dir": str(system.state_of("lisbon")), "socket": str(system.socket_of("lisbon"))}
    config = system._write("lisbon", {"name": "lisbon", "broker": broker, **places})
    system.command("gateway", "init", "--file", f"{folder}/request", "--config", config, status=0)
    words = ["keys", "accept", "lisbon", "--request", f"{folder}/request", "--bundle", f"{folder}/bundle"]
    system.command(*words, station="north", status=0)
    system.kill("north")
    shutil.rmtree(system.state_of("north"))
    system.command("gateway", "join", "--bundle", f"{folder}/bundle", "--config", config, station="lisbon", status=0)
    system.add_station("lisbon", "gateway", {"broker": broker})
    system.ports["lisbon"] = broker["port"]


def join_by_token_and_by_fingerprint(system: System) -> None:
    system.add_agent("cam-1", "lisbon")
    system.command("keys", "window", "open", "--for", "10m", station="lisbon", status=0)
    invited = {
        "site": "lisbon",
        "root": system.fleet.ceremony.current().fingerprint.hex(),
        "broker": {"host": "127.0.0.1", "port": system._settings["lisbon"]["broker"]["enroll_port"]},
    }
    system.start_agent("cam-2", {}, None, invited)
    system.until(lambda: FINGERPRINT.search(system.log("cam-2")), "cam-2 shows its fingerprint")
    shown = FINGERPRINT.search(system.log("cam-2"))
    assert shown is not None
    asked = '"state":"pending"'
    system.until(
        lambda: asked in system.ask("lisbon", "GET", "/keys?kind=device")[1].decode().replace(" ", ""), "it asks"
    )
    system.command("keys", "accept", "cam-2", "--fingerprint", shown[1], station="lisbon", status=0)
    system.present(2, "lisbon")
