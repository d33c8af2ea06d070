"""``make failover-time``: how long events need to reach the next master when the active one is lost.

    .venv/bin/python -m tests.chaos.failover_time [--types failover hot str] [--losses killed silent] [--repeat 5]

Two masters and a gateway run with the default settings, each in a network namespace of its own. In each turn the
active master is lost: its process is killed with SIGKILL, or its line drops every packet. Right after that an event is
fired at the gateway. The figure is the time from the loss until a client of the other master reads that event.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import median
from typing import Final

from device_agent.errors import StationFailed
from gateway.cli.client import UnixConnection
from gateway.rehearsal import Child, program
from tests.chaos.network import Network, available
from tests.peers.system import System

LINKS: Final = {"master-a": "link-a", "master-b": "link-b"}
SITE: Final = "lisbon"
TAG: Final = "site/failover"
PORT: Final = 4510
EVENT_SECONDS: Final = 300.0
"""How long one turn waits for its event."""


class FailoverBed(System):
    """Two masters and one gateway without devices. Nothing is set but addresses and the type."""

    def __init__(self, network: Network, master_type: str) -> None:
        super().__init__()
        self._network = network
        self._type = master_type

    def establish(self) -> None:
        """Start and join everything."""
        for master, link in LINKS.items():
            listen = f"tcp://{self._network.address(link, master)}:{PORT}"
            self.fleet.add_master(master, self.state_of(master), address=listen)
            for other in self.stations:
                self.publish_fleet(other)
            self.add_station(master, "master", {"sites": {"listen": listen}})
        self.fleet.pin(self.state_of(SITE))
        masters = [self.address(master) for master in LINKS]
        broker = {"host": "127.0.0.1", "port": 1884, "enroll_port": 1885}
        self.add_station(SITE, "gateway", {"masters": masters, "master_type": self._type, "broker": broker})
        self.join(SITE, "master-a")

    def start(self, name: str, words: Sequence[str]) -> Child:
        """Start a process in its network namespace."""
        command = list(words) if words[0].startswith("/") else [*program(), *words]
        place = name if name in LINKS else "gateway"
        return super().start(name, [*self._network.inside(place), *command])

    def both_up(self) -> str:
        """Wait until one master is active and the other stands by; return the name of the active master."""
        names = {self.address(master)["address"]: master for master in LINKS}

        def roles() -> dict[str, str]:
            return {link["role"]: names[link["address"]] for link in self.view(SITE)["uplink"]["links"]}

        self.until(lambda: roles().keys() == {"active", "standby"}, "both masters have the site")
        self.until(lambda: self.view(SITE)["spool_pending"] == 0, "the spool is empty")
        return roles()["active"]

    def turn(self, loss: str, number: int) -> float:
        """Lose the active master; return the seconds until the other one shows the event that follows."""
        lost = self.both_up()
        (other,) = LINKS.keys() - {lost}
        with closing(UnixConnection(self.socket_of(other), EVENT_SECONDS)) as connection:
            connection.request("GET", f"/events?tag={TAG}")
            with connection.getresponse() as response:
                # The first line says that the station listens.
                response.readline()
                begun = time.monotonic()
                self._lose(lost, loss)
                self.stations[SITE].fire(TAG, {"number": number})
                while not _has_number(response.readline(), number):
                    if time.monotonic() - begun > EVENT_SECONDS:
                        raise StationFailed(f"the event did not reach {other} within {EVENT_SECONDS:.0f} s")
                took = time.monotonic() - begun
        if loss == "killed":
            self.restart(lost)
        else:
            self._network.fill_hole(LINKS[lost])
        return took

    def _lose(self, master: str, loss: str) -> None:
        if loss == "killed":
            self.kill(master)
        else:
            self._network.hole(LINKS[master])


def _has_number(line: bytes, number: int) -> bool:
    return bool(line.strip()) and json.loads(line)["data"]["number"] == number


def measure(types: Sequence[str], losses: Sequence[str], repeat: int, say: Callable[[str], None]) -> None:
    """Print the figures of each type and each loss."""
    for master_type in types:
        with Network() as network, FailoverBed(network, master_type) as bed:
            bed.establish()
            for loss in losses:
                took = []
                for number in range(repeat):
                    took.append(bed.turn(loss, number))
                    say(f"{master_type} {loss} {number + 1}: {took[-1]:.2f} s")
                middle = f"median {median(took):.2f} s, lowest {min(took):.2f} s, highest {max(took):.2f} s"
                say(f"{master_type} {loss}: {middle}, {repeat} times")


def main(arguments: Sequence[str]) -> int:
    """Measure; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.failover_time", description="Time a failover.")
    kinds = ["failover", "hot", "str"]
    parser.add_argument("--types", nargs="+", choices=kinds, default=kinds, help="master_type (default: all)")
    losses = ["killed", "silent"]
    parser.add_argument("--losses", nargs="+", choices=losses, default=losses, help="how the active one is lost")
    parser.add_argument("--repeat", type=int, default=5, help="times each (default: 5)")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0 or not available():
        print("failover-time needs root and network namespaces\n  try: sudo make failover-time", file=sys.stderr)
        return 1
    measure(given.types, given.losses, given.repeat, lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
