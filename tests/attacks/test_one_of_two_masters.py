"""Two masters of one root list: what one has accepted or revoked, the other knows; each is enough."""

from __future__ import annotations

import pytest

from tests.peers.stolen_disk import StolenDisk
from tests.peers.system import System, assert_exactly_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def test_what_one_master_accepted_works_under_the_other_when_the_first_is_gone() -> None:
    with whole_system() as system:
        system.add_master("north")
        system.add_master("south")
        # It is told of north alone, and of south by the root list.
        system.add_gateway("lisbon", "north")
        system.join("lisbon", "north")
        devices = system.add_swarm(2, "lisbon")
        system.present(2, "lisbon", "north")
        accepted = {key["name"]: key for key in system.view("lisbon", "/keys?kind=device")["keys"]}
        assert system.view("south", "/keys")["keys"] == []
        system.kill("north")
        system.present(2, "south")
        jid = system.issue("south", "*", "test.ping")
        assert_exactly_once(system.ended("south", jid), devices)

        [site] = system.stations["south"].keys().keys
        assert (site.site, site.state) == ("lisbon", "accepted")
        for device in devices:
            [known] = system.view("south", f"/devices/{device}")["devices"]
            own = accepted[device]
            for fact in ("did", "fingerprint", "state", "accepted_by", "accepted_at"):
                assert known[fact] == own[fact]
            shown = system.command("devices", "show", device, station="south", status=0).out
            print(shown)
            assert own["accepted_by"] in shown
        # Nobody had to accept anybody, neither there nor at the site.
        assert "keys.accept" not in system.ask("south", "GET", "/audit")[1].decode()


def test_a_site_that_one_master_revoked_is_nobody_to_the_other() -> None:
    with whole_system() as system:
        system.add_master("north")
        system.add_master("south")
        for site in ("lisbon", "porto"):
            system.add_gateway(site, "north")
            system.join(site, "north")
        thief = StolenDisk(system.state_of("porto"), "porto").signing.kid
        system.command("sites", "revoke", "porto", "--why", "stolen", "--yes", station="north", status=0)
        system.until(lambda: "rejected" in system.view("porto")["uplink"]["last_error"], "porto is out")
        system.kill("north")
        system.connected("lisbon", "south")
        import time
        t=time.time()
        while time.time()-t<20:
            print(system.view("south","/keys"), system.view("porto")["uplink"], system.view("porto","/fleet"))
            time.sleep(3)
        print(system.log("south"))
