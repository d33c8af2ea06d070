"""A master and a site with a line between them that has a rate, can be cut, and counts what it carries."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from gateway.cli.key_client import KeyClient
from gateway.rehearsal import Child, program
from tests.chaos.network import Network
from tests.peers.system import QUICK, System

LINK = "link-a"
MASTER, SITE = "central", "lisbon"
PLACES = {MASTER: "master-a"}
PORT, BROKER_PORT, ENROLL_PORT = 4510, 1884, 1885
FRAME_BYTES = 66
"""What Ethernet, IP and TCP put around the bytes of a connection, in every packet."""


class UplinkLine(System):
    """The master in one network namespace; the gateway and its devices in another."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def establish(self, grants: Sequence[str], **settings: object) -> None:
        """Both stations, joined."""
        listen = f"tcp://{self.network.address(LINK, 'master-a')}:{PORT}"
        self.fleet.add_master(MASTER, self.state_of(MASTER), address=listen)
        roots = {"file_roots": {"base": [str(self.folder / "srv")]}}
        (self.folder / "srv").mkdir()
        self.add_station(MASTER, "master", {"sites": {"listen": listen}, **roots})
        self.fleet.pin(self.state_of(SITE))
        broker = {"host": "127.0.0.1", "port": BROKER_PORT, "enroll_port": ENROLL_PORT}
        self.add_station(SITE, "gateway", {"masters": [self.address(MASTER)], **QUICK, "broker": broker, **settings})
        self.join(SITE, MASTER, grants)

    def start(self, name: str, words: Sequence[str]) -> Child:
        """Start a process in its place."""
        command = list(words) if words[0].startswith("/") else [*program(), *words]
        return super().start(name, [*self.network.inside(PLACES.get(name, "gateway")), *command])

    def devices(self, count: int, cache: str) -> None:
        """A swarm of so many devices, which keep files in folders of their own."""
        wish = {"uses": count, "address": f"127.0.0.1:{ENROLL_PORT}", "name": ""}
        token = KeyClient(self.stations[SITE]).new_tokens(wish)[0].text
        self.start("swarm", ["swarm", "--devices", str(count), "--token", token, "--cache", cache])
        self.present(count, SITE, MASTER)

    def carried(self) -> int:
        """Bytes of connections that came down the line since it was made, with all that was sent again."""
        words = ["/usr/sbin/ip", "-n", self.network.namespace("gateway"), "-j", "-s", "link", "show", "dev", LINK]
        said = subprocess.run(words, capture_output=True, timeout=120, check=True)
        (link,) = json.loads(said.stdout)
        received = link["stats64"]["rx"]
        return int(received["bytes"]) - FRAME_BYTES * int(received["packets"])
