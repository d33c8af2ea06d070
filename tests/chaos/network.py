"""Network namespaces of a run, the links between them, and the ways to break those.

Each link is a veth pair with both its ends in namespaces of the run: nothing of the machine's own network is touched.
Of the ways to degrade one, ``tbf`` is there on a plain kernel and ``netem`` is not. A black hole is a wrong link
address for the other end: what is sent goes out, and nobody takes it.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Sequence
from typing import Self

from tests.peers.namespace import own_files

ENDS: dict[str, tuple[str, str]] = {
    "link-a": ("gateway", "master-a"),
    "link-b": ("gateway", "master-b"),
    "link-d": ("gateway", "devices"),
}
"""The links, and who is at their ends."""

PLACES = ("master-a", "master-b", "gateway", "devices")
NOBODY = "02:00:00:00:00:01"
"""The link address of no machine."""

COMMAND_SECONDS = 20.0
NAME_SERVER = "127.0.0.53"
RESOLVER = f"nameserver {NAME_SERVER}\n"
NAMES = "passwd: files\ngroup: files\nhosts: files dns\n"

BURST = "16kb"
LATENCY = "400ms"


class Network:
    """The namespaces, for as long as the context lasts."""

    def __init__(self) -> None:
        self._mark = f"chaos-{secrets.token_hex(3)}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            for place in PLACES:
                _ip("netns", "add", self.namespace(place))
                _ip("-n", self.namespace(place), "link", "set", "lo", "up")
                # A link that is down keeps its IPv6 addresses as it keeps the others.
                _run([*self.inside(place), "sysctl", "-qw", "net.ipv6.conf.all.keep_addr_on_down=1"])
            files = {"resolv.conf": RESOLVER, "nsswitch.conf": NAMES}
            self._stack.enter_context(own_files(self.namespace("gateway"), files))
            for link, (near, far) in ENDS.items():
                a, b = self.namespace(near), self.namespace(far)
                _ip("-n", a, "link", "add", link, "type", "veth", "peer", "name", link, "netns", b)
                for place in (near, far):
                    self._address("add", link, place)
                    there = ["-n", self.namespace(place), "-6", "addr", "add"]
                    _ip(*there, f"{self.address6(link, place)}/64", "dev", link, "nodad")
                    _ip("-n", self.namespace(place), "link", "set", link, "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def namespace(self, place: str) -> str:
        """The name of a place's namespace."""
        return f"{self._mark}-{place}"

    def inside(self, place: str) -> list[str]:
        """What goes before a command to run it in this place."""
        return ["/usr/sbin/ip", "netns", "exec", self.namespace(place)]

    @staticmethod
    def address(link: str, place: str) -> str:
        """Where a place is on a link."""
        return f"10.77.{list(ENDS).index(link) + 1}.{ENDS[link].index(place) + 1}"

    @staticmethod
    def address6(link: str, place: str) -> str:
        """Where a place is on a link, by IPv6."""
        return f"fd77:{list(ENDS).index(link) + 1}::{ENDS[link].index(place) + 1}"

    def ipv6_alone(self, link: str) -> None:
        """Take the IPv4 addresses of the link away."""
        for place in ENDS[link]:
            self._address("del", link, place)

    def ipv4_again(self, link: str) -> None:
        """Give them back."""
        for place in ENDS[link]:
            self._address("add", link, place)

    def _address(self, verb: str, link: str, place: str) -> None:
        _ip("-n", self.namespace(place), "addr", verb, f"{self.address(link, place)}/24", "dev", link)

    def down(self, link: str) -> None:
        """Pull the plug at the gateway's end: whoever sends there is told."""
        _ip("-n", self.namespace(ENDS[link][0]), "link", "set", link, "down")

    def up(self, link: str) -> None:
        """Put it in again."""
        _ip("-n", self.namespace(ENDS[link][0]), "link", "set", link, "up")

    def hole(self, link: str) -> None:
        """From now on everything that is sent is lost on the way, in both directions, and nobody is told."""
        for place, other in self._directions(link):
            for address in (self.address(link, other), self.address6(link, other)):
                _ip(*self._neighbour("replace", link, place, address), "lladdr", NOBODY, "nud", "permanent")

    def fill_hole(self, link: str) -> None:
        """It arrives again."""
        for place, other in self._directions(link):
            for address in (self.address(link, other), self.address6(link, other)):
                _ip(*self._neighbour("del", link, place, address))

    def slow(self, link: str, kbit: int) -> None:
        """No more than this rate, in both directions."""
        for place in ENDS[link]:
            shape = ["tbf", "rate", f"{kbit}kbit", "burst", BURST, "latency", LATENCY]
            _tc("-n", self.namespace(place), "qdisc", "replace", "dev", link, "root", *shape)

    def fast(self, link: str) -> None:
        """As fast as the machine is."""
        for place in ENDS[link]:
            _tc("-n", self.namespace(place), "qdisc", "del", "dev", link, "root")

    def _directions(self, link: str) -> list[tuple[str, str]]:
        near, far = ENDS[link]
        return [(near, far), (far, near)]

    def _neighbour(self, verb: str, link: str, place: str, address: str) -> list[str]:
        return ["-n", self.namespace(place), "neigh", verb, address, "dev", link]

    def _remove(self) -> None:
        self._stack.close()
        for place in PLACES:
            # Those that were not made are not there to be removed, which is no error.
            subprocess.run(
                ["/usr/sbin/ip", "netns", "del", self.namespace(place)],
                capture_output=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )


def available() -> bool:
    """Whether this machine and user can make a namespace."""
    name = f"chaos-probe-{secrets.token_hex(3)}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _ip(*words: str) -> None:
    _run(["/usr/sbin/ip", *words])


def _tc(*words: str) -> None:
    _run(["/usr/sbin/tc", *words])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, timeout=COMMAND_SECONDS, text=True, check=False)
    if done.returncode:
        raise subprocess.SubprocessError(f"{' '.join(command)}: {done.stderr.strip()}")
