"""The product in ``bench ssh``: two gateways in processes of their own, with the same devices.

One keeps its connections, and is where commands on kept connections and the memory of idle devices are measured. The
other closes each after a few seconds, so that every job has to connect anew. Neither has a master.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from device_agent.errors import StationFailed
from device_agent.trust.policy import SitePolicy
from gateway.bench.usage import Usage, cpu_seconds, rss_bytes, usage_of
from gateway.bench.witness import Standing, Witness
from gateway.broker.mosquitto import settings_text
from gateway.broker.start import find_mosquitto
from gateway.cli.ssh_client import SshClient
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.jobs.collect import CONFIRM_SECONDS
from gateway.rehearsal import Rehearsal, accepts, free_ports

HOST: Final = "127.0.0.1"
KEPT: Final = "kept"
ANEW: Final = "anew"
IDLE_SECONDS: Final = {KEPT: 86_400, ANEW: 5}
POLL_SECONDS: Final = 86_400
"""Looking is not what is measured."""

AT_A_TIME: Final = 500
"""Devices that are added with one request."""

BROKER_SECONDS: Final = 10.0
PRESENT_SECONDS: Final = 60.0
PRESENT_SECONDS_PER_DEVICE: Final = 0.1
JOB_SECONDS: Final = 120.0
QUIET_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.2
QUIET_WINDOW_SECONDS: Final = 0.8
QUIET_CPU_SHARE: Final = 0.15


@dataclass(frozen=True)
class Ran:
    """One command on every device: seconds until the last was done with, and until the first and last answers."""

    seconds: float
    first: float
    last: float
    usage: Usage


@dataclass(frozen=True)
class Site:
    """Where the devices are, and what opens their doors."""

    places: Sequence[tuple[str, int]]
    user: str
    private_key: str
    fingerprint: str
    command: str
    expected: str


class Product:
    """Both gateways in their rehearsal."""

    def __init__(self, rehearsal: Rehearsal, site: Site, say: Callable[[str], None]) -> None:
        self._rehearsal = rehearsal
        self._site = site
        self._say = say
        self._witnesses = {name: Witness(rehearsal.socket_of(name)) for name in IDLE_SECONDS}

    def start(self) -> float:
        """Start everything, and wait until every device is present; bytes that a device takes while it is idle."""
        fleet = RehearsedFleet(self._rehearsal.folder / "fleet")
        self._say("starting a broker and two gateways")
        ports = self._start_broker()
        for name, idle in IDLE_SECONDS.items():
            broker = {"mode": "external", "host": HOST, "port": ports[0], "enroll_port": ports[1]}
            link = {"idle_seconds": idle, "connections": max(1000, len(self._site.places))}
            self._rehearsal.gateway_settings(name, broker, ssh=link)
            fleet.certify(self._rehearsal.folder / name, name, SitePolicy(fun=("test.*", "cmd.*")))
            self._rehearsal.run_station(name, "gateway")
        before = self._idle_bytes(KEPT)
        for name in IDLE_SECONDS:
            self._add(name)
        self._wait_quiet(KEPT)
        taken = self._idle_bytes(KEPT) - before
        return taken / len(self._site.places)

    def run(self, name: str) -> Ran:
        """The command on every device through this gateway. Raises ``StationFailed`` when any answer is missing."""
        witness, count = self._witnesses[name], len(self._site.places)
        there = count if name == KEPT else 0
        self._until(name, lambda: self._standing(name).connections == there, f"{there} connections are open")
        self._wait_quiet(name)
        before = usage_of(self._pid(name))
        jid = witness.create_job({"tgt": "*", "fun": "cmd.run", "arg": [self._site.command]}).jid

        def closed() -> bool:
            time.sleep(LOOK_SECONDS)
            return not witness.standing().jobs_open and witness.times(jid).closed is not None

        self._rehearsal.wait_until(closed, JOB_SECONDS, f"job {jid} is closed")
        used = usage_of(self._pid(name)).since(before)
        times = witness.times(jid)
        assert times.closed is not None
        outcomes = list(witness.outcomes(jid))
        wrong = [each for each in outcomes if (each.outcome, each.value) != ("ok", self._site.expected)]
        if wrong or len(outcomes) != count:
            raise StationFailed(
                "not every device answered as it should, so there is no figure",
                error_id="bench.incomplete",
                where=f"job {jid}",
                found=f"{len(outcomes) - len(wrong)} right answers"
                + (f", and from {wrong[0].id}: {wrong[0].outcome} {wrong[0].why} {wrong[0].value!r}" if wrong else ""),
                allowed=f"{count} right answers",
            )
        ends = [each.ended - times.issued for each in outcomes if each.ended is not None]
        # What it does with the answers afterwards must not fall into the next measurement.
        time.sleep(CONFIRM_SECONDS)
        return Ran(times.closed - times.issued, min(ends), max(ends), used)

    def _add(self, name: str) -> None:
        """The devices, as an operator imports them."""
        client, places = SshClient(self._witnesses[name]), self._site.places
        wishes: list[dict[str, Any]] = [
            {
                "name": f"d-{place:05}",
                "user": self._site.user,
                "host": host,
                "port": port,
                "private_key": self._site.private_key,
                "fingerprints": [self._site.fingerprint],
                "poll_seconds": POLL_SECONDS,
            }
            for place, (host, port) in enumerate(places)
        ]
        for start in range(0, len(wishes), AT_A_TIME):
            client.put(wishes[start : start + AT_A_TIME])
        self._until(name, lambda: self._standing(name).present == len(places), f"{len(places)} devices are present")

    def _standing(self, name: str) -> Standing:
        time.sleep(LOOK_SECONDS)
        standing = self._witnesses[name].standing()
        self._say(f"{standing.present:,} of {len(self._site.places):,} devices are present")
        return standing

    def _until(self, name: str, probe: Callable[[], bool], what: str) -> None:
        seconds = PRESENT_SECONDS + PRESENT_SECONDS_PER_DEVICE * len(self._site.places)
        self._rehearsal.wait_until(probe, seconds, f"{what} at the gateway {name}")

    def _idle_bytes(self, name: str) -> int:
        self._wait_quiet(name)
        return rss_bytes(self._pid(name))

    def _wait_quiet(self, name: str) -> None:
        """Wait until what was done before is over."""
        pid = self._pid(name)

        def quiet() -> bool:
            before = cpu_seconds(pid)
            time.sleep(QUIET_WINDOW_SECONDS)
            return cpu_seconds(pid) - before < QUIET_CPU_SHARE * QUIET_WINDOW_SECONDS

        self._rehearsal.wait_until(quiet, QUIET_SECONDS, f"the gateway {name} is quiet")

    def _pid(self, name: str) -> int:
        return self._rehearsal.children[name].process.pid

    def _start_broker(self) -> list[int]:
        """A broker that lets everybody in; nothing goes over it."""
        program = find_mosquitto()
        if program is None:
            raise StationFailed("mosquitto is not installed", error_id="bench.no_broker", hint="apt install mosquitto")
        ports = free_ports(2)
        settings = self._rehearsal.folder / "mosquitto.conf"
        settings.write_text(settings_text(HOST, ports[0]) + f"listener {ports[1]} {HOST}\n", encoding="utf-8")
        self._rehearsal.start("mosquitto", [program, "-c", str(settings)])
        self._rehearsal.wait_until(lambda: accepts(HOST, ports[0]), BROKER_SECONDS, "the broker accepts connections")
        return ports
