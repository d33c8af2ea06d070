"""The processes of a chaos run, each in its place, and what keeps them up, as systemd does on a real machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch

import psutil

from device_agent.errors import OutstationError, StationFailed
from gateway.cli.key_client import KeyClient
from gateway.rehearsal import PROBE_SECONDS, Child, program
from tests.chaos import names, ssh_device
from tests.chaos.disk import Disk
from tests.chaos.network import NAME_SERVER, Network
from tests.chaos.ssh_device import SshDevice
from tests.peers.system import QUICK, Fields, System

MASTERS = ("master-a", "master-b")
FAILOVER: Fields = {
    "master_alive_interval": 2.0,
    "master_failback": True,
    "master_failback_interval": 3.0,
    "random_reauth_delay": 1.0,
}
"""Quicker than anybody would have it, so that a run sees the roles of the masters change often."""

SITE = "lisbon"
STATIONS = (*MASTERS, SITE)
NAMES, DOMAIN = "names", "chaos"
"""The process of the name server, and what the names that it knows end with."""

SITES_PORT = 4510
BROKER_PORT = 1884
ENROLL_PORT = 1885
RESTART_SECONDS = 1.0
"""Between the end of a process and its next start."""

LOG_TAIL = 2000
REPORT_SECONDS = 20.0


@dataclass(frozen=True)
class Ending:
    """A process that ended although nobody had killed it; when, on the monotonic clock."""

    at: float
    name: str
    status: int
    log: str


class Plant(System):
    """Two masters of one fleet, a gateway with its broker, and swarms; everybody in a network namespace."""

    def __init__(self, network: Network, megabytes: int, master_type: str = "failover") -> None:
        super().__init__()
        self._network = network
        self._master_type = master_type
        self._stack = contextlib.ExitStack()
        self._lock = threading.RLock()
        self._held: set[str] = set()
        self._again: dict[str, float] = {}
        self._wanted: dict[str, Callable[[], object]] = {}
        self._generations: dict[int, int] = {}
        self.swarm_devices = 0
        self.endings: list[Ending] = []
        self.reports: dict[str, Fields] = {}
        """The newest report of each swarm that ever was."""
        self.ssh = SshDevice(self.temporary() / ssh_device.NAME, network.address("link-d", "devices"))
        self.disk = Disk(self.state_of(SITE), megabytes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._wanted.clear()
        for link in ("link-a", "link-b"):
            with contextlib.suppress(Exception):
                self._network.up(link)
        # The folder goes with the system, so the mount has to go before: after the processes, that is.
        for name in reversed(list(self.children)):
            self.stop(name, signal.SIGKILL)
        self._stack.close()
        super().__exit__(kind, error, trace)

    # --- beginning -----------------------------------------------------------------------------------------------

    def establish(self, devices: int, swarms: int) -> None:
        """Everything up, joined and here."""
        # What a killed process leaves goes with this run.
        self._stack.enter_context(patch.dict(os.environ, TMPDIR=str(self.temporary())))
        self._stack.enter_context(self.disk)
        self._start_names()
        for master in MASTERS:
            self._add_master(master)
        self.fleet.pin(self.state_of(SITE))
        self.add_station(
            SITE,
            "gateway",
            {
                "masters": [{"address": _address(each), "key": self.address(each)["key"]} for each in MASTERS],
                **QUICK,
                **FAILOVER,
                "master_type": self._master_type,
                "broker": {"host": "0.0.0.0", "port": BROKER_PORT, "enroll_port": ENROLL_PORT},
            },
        )
        self.join(SITE, "master-a")
        self._start_ssh()
        self._wanted[ssh_device.NAME] = self._start_ssh
        self.command("devices", "import", str(self.ssh.listed()), station=SITE, status=0)
        self.swarm_devices = devices // swarms
        for number in range(swarms):
            self.add_generation(number)
        self.present(self.swarm_devices * swarms + 1, SITE, "master-a")
        for name in STATIONS:
            self._wanted[name] = lambda name=name: self._start_again(name)  # type: ignore[misc] # mypy infers no type for a default

    def _start_names(self) -> None:
        known = [
            f"{name}.{DOMAIN}={self._network.address(link, name)},{self._network.address6(link, name)}"
            for name in MASTERS
            for link in [f"link-{name[-1]}"]
        ]
        self.start(NAMES, [sys.executable, names.__file__, NAME_SERVER, *known])

    def silence_names(self, *, silent: bool) -> None:
        """The name server answers nothing, or again."""
        self.children[NAMES].process.send_signal(signal.SIGSTOP if silent else signal.SIGCONT)

    def _start_ssh(self) -> None:
        self.start(ssh_device.NAME, self.ssh.command())

    def _add_master(self, name: str) -> None:
        listen = f"tcp://[::]:{SITES_PORT}"
        self.fleet.add_master(name, self.state_of(name), address=_address(name))
        for other in MASTERS:
            if other in self.children:
                self.publish_fleet(other)
        self.add_station(name, "master", {"sites": {"listen": listen}})

    def add_generation(self, number: int) -> str:
        """A swarm of new devices in the place of one that died: what they were has died with it."""
        generation = self._generations[number] = self._generations.get(number, -1) + 1
        name = f"swarm-{number}"
        token = self._token()
        report = self.folder / f"{name}.{generation}.json"
        words = ["--devices", str(self.swarm_devices), "--token", token, "--prefix", f"cam-{number}{generation:02d}-"]
        self.start(name, ["swarm", *words, "--report", str(report)])
        return name

    def renew_swarm(self, number: int) -> None:
        """A new generation as soon as the site gives it a token."""
        with self._lock:
            self._held.discard(f"swarm-{number}")
            self._wanted[f"swarm-{number}"] = lambda: self._try_generation(number)
            self._again[f"swarm-{number}"] = 0.0

    def _try_generation(self, number: int) -> None:
        name = f"swarm-{number}"
        try:
            self.add_generation(number)
        except OutstationError:
            self._again[name] = time.monotonic() + RESTART_SECONDS
        else:
            # Of whoever ends by itself from now on nothing is left that could come back.
            del self._wanted[name]

    def missing_swarms(self) -> list[str]:
        """Swarms that are not up, or whose devices are not all welcomed."""
        self.take_reports()
        found = []
        for number, generation in self._generations.items():
            report = self.reports.get(f"swarm-{number}.{generation}", {})
            if f"swarm-{number}" not in self.children or report.get("welcomed") != self.swarm_devices:
                found.append(f"swarm-{number}")
        return found

    def _token(self) -> str:
        wish = {"uses": self.swarm_devices, "address": f"{self._network.address('link-d', 'gateway')}:{ENROLL_PORT}"}
        return KeyClient(self.stations[SITE]).new_tokens({"name": "", **wish})[0].text

    # --- processes -----------------------------------------------------------------------------------------------

    def start(self, name: str, words: Sequence[str]) -> Child:
        """Start a process in its place."""
        command = list(words) if words[0].startswith("/") else [*program(), *words]
        with self._lock:
            return super().start(name, [*self._network.inside(place_of(name)), *command])

    def wait_until(self, probe: Callable[[], bool], seconds: float, what: str) -> None:
        """Return when the probe is true, whoever ended meanwhile: that is what this is about."""
        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while not probe():
            if time.monotonic() > deadline:
                raise StationFailed(f"gave up after {seconds:.0f} s waiting until {what}", found=self._tails())
            if self._wanted:
                self.keep_up(time.monotonic())
            pause.wait(PROBE_SECONDS)

    def _start_again(self, name: str) -> None:
        self.start(name, [self._roles[name], "run", "--config", str(self.folder / f"{name}.yaml")])

    def hold(self, name: str) -> None:
        """SIGKILL, and down until ``let_go``."""
        with self._lock:
            self._held.add(name)
            if name in self.children:
                self.kill_now(name)

    def kill_now(self, name: str) -> None:
        """SIGKILL."""
        with self._lock:
            child = self.children.pop(name)
            child.process.kill()
            child.process.wait(REPORT_SECONDS)

    def let_go(self, name: str) -> None:
        """Up again from now on."""
        with self._lock:
            self._held.discard(name)
            if name in self._wanted and name not in self.children:
                self._wanted[name]()

    def pid_of(self, name: str) -> int:
        """The process id of a station that runs; one that is about to start is waited for."""
        deadline, pause = time.monotonic() + REPORT_SECONDS, threading.Event()
        while name not in self.children and time.monotonic() < deadline:
            self.keep_up(time.monotonic())
            pause.wait(PROBE_SECONDS)
        return self.children[name].process.pid

    def kill_broker(self) -> bool:
        """SIGKILL of the gateway's mosquitto; False when there is none now."""
        with self._lock:
            child = self.children.get(SITE)
            if child is None:
                return False
            try:
                found = [each for each in psutil.Process(child.process.pid).children() if each.name() == "mosquitto"]
                for each in found:
                    each.kill()
            except psutil.NoSuchProcess:
                return False
            return bool(found)

    def keep_up(self, now: float) -> None:
        """Start again what has ended by itself, a moment later."""
        with self._lock:
            for name, child in list(self.children.items()):
                if child.process.poll() is not None:
                    self.endings.append(Ending(now, name, child.process.returncode, child.log_tail()))
                    del self.children[name]
                    if name.startswith("swarm-"):
                        self.renew_swarm(int(name.removeprefix("swarm-")))
                    self._again[name] = now + RESTART_SECONDS
            for name, start in list(self._wanted.items()):
                if name not in self.children and name not in self._held and now >= self._again.get(name, 0.0):
                    start()

    # --- questions -----------------------------------------------------------------------------------------------

    def take_reports(self) -> None:
        """Ask every swarm what its devices did; read what they said when they were asked before."""
        with self._lock:
            for number, generation in self._generations.items():
                name = f"swarm-{number}"
                path = self.folder / f"{name}.{generation}.json"
                with contextlib.suppress(OSError, ValueError):
                    self.reports[path.stem] = json.loads(path.read_text())
                # Whoever has not yet got so far as to hear a signal would die of it.
                if name in self.children and _hears(self.children[name].process.pid, signal.SIGUSR1):
                    self.children[name].process.send_signal(signal.SIGUSR1)

    def last_reports(self) -> None:
        """The reports as of now, of the swarms that live."""
        with self._lock:
            paths = [
                self.folder / f"swarm-{number}.{generation}.json"
                for number, generation in self._generations.items()
                if f"swarm-{number}" in self.children
            ]
        for path in paths:
            path.unlink(missing_ok=True)
        self.take_reports()
        # One that does not report is missed by whoever looks at the reports.
        with contextlib.suppress(StationFailed):
            self.wait_until(lambda: all(path.exists() for path in paths), REPORT_SECONDS, "the swarms have reported")
        self.take_reports()

    def answers(self, name: str) -> bool:
        """Whether a station answers at its socket."""
        try:
            return self.stations[name].station().name == name
        except OutstationError:
            return False

    def store_of(self, name: str) -> Path:
        """A station's SQLite file."""
        return self.state_of(name) / "station.sqlite"

    def crashes(self) -> list[str]:
        """Processes with a traceback in their log."""
        return [
            path.stem for path in sorted(self.folder.glob("*.log")) if "Traceback" in path.read_text(errors="replace")
        ]

    def station_view(self, name: str) -> dict[str, Any]:
        """What a station says of itself; empty while it does not answer."""
        with contextlib.suppress(OutstationError, OSError, AssertionError, ValueError):
            return self.view(name)
        return {}


def _address(master: str) -> str:
    """Where a master is, by its name."""
    return f"tcp://{master}.{DOMAIN}:{SITES_PORT}"


def place_of(name: str) -> str:
    """In which namespace a process is."""
    if name in MASTERS:
        return name
    return "devices" if name.startswith(("swarm", "ssh")) else "gateway"


def _hears(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (proc(5), status)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught >> (number - 1) & 1)
