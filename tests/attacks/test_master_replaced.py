"""A master is replaced by another one, by root lists and in the order that the handbook gives; nobody goes to a site.

Whoever keeps the root keys would put off dropping a master that was stolen if a site could be lost by it.
"""

from __future__ import annotations

from typing import Any

import pytest

from device_agent.errors import EXIT_OK
from device_agent.trust.site_certificate import read_site_certificate
from tests.peers.broker import free_port
from tests.peers.stolen_disk import StolenDisk
from tests.peers.system import System, assert_exactly_once, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, OLD, NEW = "lisbon", "north", "south"


class Ceremony:
    """The folder of the root lists and two of the three keys, as the holders use them: by commands."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.folder = system.fleet.ceremony.folder

    def run(self, *words: str) -> None:
        keys = [word for number in (1, 3) for word in ("--key", str(self.folder / f"root-{number}.key"))]
        self.system.command("fleet", *words, "--folder", str(self.folder), *keys, status=EXIT_OK)

    def publish(self, station: str) -> None:
        self.system.command("fleet", "publish", str(self.folder / "root-lists"), station=station, status=EXIT_OK)

    @property
    def version(self) -> int:
        return self.system.fleet.ceremony.current().version


def add_master(system: System, ceremony: Ceremony, name: str) -> None:
    """A master joins the fleet before it runs for the first time; those that run are told of it."""
    listen = f"tcp://127.0.0.1:{free_port()}"
    sites: dict[str, Any] = {"sites": {"listen": listen}}
    places = {"name": name, "state_dir": str(system.state_of(name)), "socket": str(system.socket_of(name))}
    config, line = system._write(name, {**places, **sites}), str(system.folder / f"{name}.master")
    own = ["--config", config]
    system.command("master", "init", "--address", listen, "--file", line, *own, status=EXIT_OK)
    ceremony.run("add-master", line)
    system.command("master", "init", "--root-list", str(ceremony.folder / "root-lists"), *own, status=EXIT_OK)
    ceremony.publish(OLD)
    system.add_station(name, "master", sites)


def has_taken(system: System, station: str, version: int) -> None:
    system.until(lambda: system.view(station, "/fleet")["root_version"] == version, f"{station} has version {version}")


def certifier(system: System) -> bytes:
    """The kid of the master whose certificate the gateway has on its disk."""
    return read_site_certificate(StolenDisk(system.state_of(SITE), SITE).certificate).issuer


def kid(system: System, master: str) -> bytes:
    return StolenDisk(system.state_of(master), master).signing.kid


def assert_obeyed(system: System, station: str, devices: list[str]) -> None:
    jid = system.issue(station, "*", "test.ping", late="run")
    assert_exactly_once(system.ended(station, jid), devices)


def accepted(system: System) -> list[tuple[str, str, str]]:
    """Whom the new master knows to have been accepted: at which station, at which door, and whom."""
    rows = system.view(NEW, "/audit?action=keys.accept")["rows"]
    return [(row["site"], row["door"], row["subject"].split()[1]) for row in rows]


def test_a_master_is_replaced_and_nobody_has_to_accept_anybody() -> None:
    with whole_system() as system:
        system.add_master(OLD)
        system.add_gateway(SITE, OLD)
        system.join(SITE, OLD)
        system.add_agent("cam-1", SITE)
        devices = ["cam-1", *system.add_swarm(2, SITE, prefix="gate-")]
        system.present(3, SITE, OLD)
        ceremony = Ceremony(system)

        add_master(system, ceremony, NEW)
        has_taken(system, SITE, ceremony.version)
        assert_obeyed(system, OLD, devices)
        assert certifier(system) == kid(system, OLD)

        # The old one stops, and the site works under the new one with the certificate that it has.
        assert system.stop(OLD) == 0
        system.connected(SITE, NEW)
        system.present(3, NEW)
        assert_obeyed(system, NEW, devices)

        # It is dropped, and what it signed counts no more: the certificate of the site is the new one's by then.
        ceremony.run("drop-master", OLD)
        ceremony.publish(NEW)
        has_taken(system, SITE, ceremony.version)
        for station in (NEW, SITE):
            assert_obeyed(system, station, devices)
        assert certifier(system) == kid(system, NEW)
        assert accepted(system) == []

        # So also after everybody began anew, and for who joins only now.
        system.kill("cam-1")
        for station in (SITE, NEW):
            system.kill(station)
            system.restart(station)
        for name in ("cam-1", "cam-2"):
            system.add_agent(name, SITE)
        devices.append("cam-2")
        system.present(4, SITE, NEW)
        for station in (NEW, SITE):
            assert_obeyed(system, station, devices)
        # All that was accepted anywhere is the newcomer, by its token and at its own site.
        assert accepted(system) == [(SITE, "device", "cam-2")]
        assert system.view(SITE, "/fleet")["masters"].count(OLD) == 0
