"""Two masters of one root list: what one has accepted or revoked, the other knows; each is enough."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.fleet.station_files import StationFiles
from tests.peers.rope import PlayedSite
from tests.peers.rope import played_site as playing
from tests.peers.stolen_disk import StolenDisk, stolen
from tests.peers.system import System, assert_exactly_once, whole_system
from upstream import frames

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


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
        # The other is told of the site by the site itself, which brings the certificate of the first.
        system.connected("lisbon", "south")
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
            assert own["accepted_by"] in shown
        # Nobody had to accept anybody, neither there nor at the site.
        assert "keys.accept" not in system.ask("south", "GET", "/audit")[1].decode()


async def test_a_site_that_one_master_revoked_is_nobody_to_the_other() -> None:
    """The masters do not know each other: what one has revoked the other hears from the sites."""
    with whole_system() as system:
        system.add_master("north")
        system.add_master("south")
        for site in ("lisbon", "porto"):
            system.add_gateway(site, "north")
            system.join(site, "north")
        system.kill("porto")
        disk = stolen(system, "porto", "thief")
        # With a certificate that counts he is let in at the other master, before that has heard of anything.
        async with as_site(system, "south", disk) as thief:
            await thief.hears(frames.SiteWelcome)
            await thief.speaks_while(lambda: revoked_by_the_first(system))
            assert (await thief.hears(frames.SiteRefused)).state == "rejected"
        async with as_site(system, "south", disk) as thief:
            assert (await thief.hears(frames.SiteRefused)).state == "rejected"
        keys = {key.site: key.state for key in system.stations["south"].keys().keys}
        assert keys == {"lisbon": "accepted", "porto": "revoked"}
        # It stays so when the master starts anew.
        system.kill("south")
        system.restart("south")
        async with as_site(system, "south", disk) as thief:
            assert (await thief.hears(frames.SiteRefused)).state == "rejected"


@asynccontextmanager
async def as_site(system: System, master: str, disk: StolenDisk) -> AsyncIterator[PlayedSite]:
    """Somebody who connects with all that is on a gateway's disk."""
    found = system.address(master)
    async with playing(found["address"], found["key"], disk.curve) as played:
        await played.hello(disk.site, request=disk.request(), certificate=disk.certificate)
        yield played


def revoked_by_the_first(system: System) -> None:
    """One master revokes a site and is gone; the other can hear of it from Lisbon alone."""
    system.command("sites", "revoke", "porto", "--why", "stolen", "--yes", station="north", status=0)
    system.until(lambda: told_of_it(system), "lisbon has heard of it")
    system.kill("north")
    system.connected("lisbon", "south")


def told_of_it(system: System) -> bool:
    return any(disk_list for disk_list in StationFiles(system.state_of("lisbon")).revocations())
