"""A whole system of real processes for a test: stations, devices, and the command line that speaks to them.

It is the rehearsal of the product with more than one of each, stations that come back where they were, and questions.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from unittest.mock import patch

from device_agent.errors import NotFound, NotRunning
from device_agent.protocol import limits
from device_agent.trust.policy import SitePolicy
from gateway.broker.mosquitto import settings_text
from gateway.broker.start import find_mosquitto
from gateway.cli.client import StationClient, UnixConnection
from gateway.cli.key_client import KeyClient
from gateway.cli.views import JobView, OutcomeView
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.rehearsal import Child, Rehearsal, join_token, program
from tests.peers.broker import free_port
from tests.peers.finished import Finished
from tests.peers.processes import processes

SECONDS = 120.0
"""How long a test waits for anything; it says nothing about how long it takes."""

QUICK = {"uplink": {"echo_seconds": 0.3}, "master_alive_interval": 3.0, "random_reauth_delay": 0.5}
"""A master that was killed is soon known to be gone; one that only is slow on a busy machine is not lost for it."""
ROOT = Path(__file__).resolve().parents[2]

Fields = dict[str, Any]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Ended:
    """A closed job with every outcome."""

    job: JobView
    outcomes: list[OutcomeView] = field(default_factory=list)

    def by_device(self) -> dict[str, OutcomeView]:
        """The outcomes by device, of which there may be only one each."""
        found = {outcome.id: outcome for outcome in self.outcomes}
        assert len(found) == len(self.outcomes)
        return found

    def words(self) -> dict[str, str]:
        """How it ended on each device."""
        return {device: outcome.outcome for device, outcome in self.by_device().items()}


class System(Rehearsal):
    """Stations by the name of their child process; a station's own name is the same unless its settings say another."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = RehearsedFleet(self.folder / "fleet")
        self.stations: dict[str, StationClient] = {}
        self.ports: dict[str, int] = {}
        """Brokers by site."""
        self._brokers: dict[str, tuple[int, int]] = {}
        self._roles: dict[str, str] = {}
        self._settings: dict[str, Fields] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever is above stops after those below, or they would wait to be confirmed.
        for name in reversed(self._settings):
            if name in self.children:
                self.children = {name: self.children.pop(name), **self.children}
        super().__exit__(kind, error, trace)

    def add_master(self, name: str = "central", /, **settings: Any) -> StationClient:
        """A master that listens where it will listen again after a restart."""
        listen = f"tcp://127.0.0.1:{free_port()}"
        self.fleet.add_master(name, self.state_of(name), address=listen)
        for station, role in self._roles.items():
            if role == "master" and station in self.children:
                self.publish_fleet(station)
        return self.add_station(name, "master", {"sites": {"listen": listen}, **settings})

    def publish_fleet(self, station: str) -> None:
        """Give a running master the newest root list, as ``outstation fleet publish`` does."""
        lists = base64.b64encode(self.fleet.file().read_bytes()).decode("ascii")
        status, body = self.ask(station, "POST", "/fleet", json.dumps({"root_lists": lists}).encode())
        assert status == 200, body

    def state_of(self, name: str) -> Path:
        """A station's state folder."""
        return self.folder / name

    def add_gateway(self, name: str, /, *above: str, **settings: Any) -> StationClient:
        """A gateway below these stations, with a broker of its own unless its settings name another.

        Without any above it has its certificate from the fleet's offline authority, with what is ``granted`` in it.
        """
        granted: SitePolicy | None = settings.pop("granted", None)
        ports = {"port": free_port(), "enroll_port": free_port()}
        broker = {"host": "127.0.0.1", **ports, **settings.pop("broker", {})}
        self.ports[name] = broker["port"]
        given = {
            "masters": [self.address(station) for station in above],
            **QUICK,
            "broker": broker,
            **settings,
        }
        if given["masters"]:
            self.fleet.pin(self.state_of(name))
        else:
            self.fleet.certify(self.state_of(name), name, granted)
        return self.add_station(name, "gateway", given)

    def add_relay(self, name: str, /, *above: str, **settings: Any) -> StationClient:
        """A gateway that has sites as well."""
        return self.add_gateway(name, *above, sites={"listen": f"tcp://127.0.0.1:{free_port()}"}, **settings)

    def add_station(self, name: str, role: str, settings: Mapping[str, Any]) -> StationClient:
        """Any station; returns when it answers."""
        self._roles[name] = role
        self._settings[name] = {
            "name": name,
            "state_dir": str(self.folder / name),
            "socket": str(self.socket_of(name)),
            **settings,
        }
        return self.restart(name)

    def restart(self, name: str) -> StationClient:
        """Start a station where it was; returns when it answers."""
        path = self._write(name, self._settings[name])
        self.start(name, [self._roles[name], "run", "--config", path])
        return self.answering(name)

    def answering(self, name: str) -> StationClient:
        """Wait until a station answers at its socket."""
        client = self.stations[name] = StationClient(self.socket_of(name))

        def answers() -> bool:
            try:
                return bool(client.station().name)
            except NotRunning:
                return False

        self.until(answers, f"{name} answers")
        return client

    def change(self, name: str, /, **settings: Any) -> None:
        """Write other settings for a station, which are read at its next start or SIGHUP."""
        self._settings[name].update(settings)
        self._write(name, self._settings[name])

    def address(self, name: str) -> Fields:
        """A station with sites, as an entry of ``masters:``."""
        return {"address": self._settings[name]["sites"]["listen"], "key": self.stations[name].station().public_key}

    def kill(self, name: str) -> None:
        """SIGKILL: nothing of it has a chance to say or write anything."""
        assert self.stop(name, signal.SIGKILL) == -signal.SIGKILL

    def join(self, site: str, above: str = "central", grants: Sequence[str] = ()) -> None:
        """Accept a site's key, and wait until it is connected and may let devices in.

        A relay lets it in and certifies nobody: behind one it is accepted at the master as well.
        """
        self._accept(site, above, grants)
        self.connected(site, above)
        if self._roles.get(above) == "gateway":
            self._accept(site, "central", grants)
        if site in self.stations:
            self.certified(site)

    def _accept(self, site: str, station: str, grants: Sequence[str]) -> None:
        client = self.stations[station]
        self.until(
            lambda: any((key.site, key.state) == (site, "pending") for key in client.keys().keys),
            f"{site} asks {station} to join",
        )
        KeyClient(client).decide(site, "accept", {"grants": list(grants)})

    def certified(self, site: str) -> None:
        """Wait until a gateway has its certificate, on its disk too: it may be killed in the next moment."""
        kept = self.state_of(site) / "site-certificate"
        self.until(lambda: self.view(site, "/fleet")["joined"] and kept.exists(), f"{site} has its certificate")

    def connected(self, site: str, above: str = "central") -> None:
        """Wait until a station has its site."""
        self.until(lambda: self.site_state(site, above), f"{above} has {site}")

    def site_state(self, site: str, above: str = "central") -> bool:
        """Whether a site is connected."""
        return any(view.site == site and view.connected for view in self.stations[above].sites())

    def add_broker(self, name: str = "broker") -> Fields:
        """A broker that belongs to no station and lets everybody in; again, it is where it was.

        Returns the ``broker`` settings of the gateway whose devices come there.
        """
        found = find_mosquitto()
        assert found is not None, "mosquitto is not installed: apt-get install mosquitto"
        port, enroll_port = self._brokers.setdefault(name, (free_port(), free_port()))
        settings = self.folder / f"{name}.conf"
        # As root mosquitto would become a user who may not look into this folder.
        text = settings_text("127.0.0.1", port) + ("user root\n" if os.geteuid() == 0 else "")
        settings.write_text(text + f"listener {enroll_port} 127.0.0.1\n")
        self.start(name, [found, "-c", str(settings)])
        return {"mode": "external", "port": port, "enroll_port": enroll_port}

    def add_swarm(self, devices: int, site: str, *, prefix: str = "cam-", name: str = "swarm") -> list[str]:
        """Many devices in one process; returns their ids."""
        token = join_token(self.stations[site], uses=devices)
        words = ["--devices", str(devices), "--token", token, "--prefix", prefix]
        self.start(name, ["swarm", *words, "--report", str(self.folder / f"{name}.json")])
        return [f"{prefix}{number:05d}" for number in range(devices)]

    def add_agent(self, name: str, site: str, settings: Fields | None = None, /, **grains: Any) -> Child:
        """A real agent, which does not wait long for its jobs when it is stopped; again, it is where it was."""
        token = self.folder / f"{name}.token"
        if not token.exists():
            token.write_text(join_token(self.stations[site], uses=1, name=name), encoding="ascii")
        table = {
            "serial": name,
            "token_file": str(token),
            "state_dir": str(self.folder / name),
            "grains": grains,
            "drain_seconds": 0.5,
            **(settings or {}),
        }
        return self.start(name, ["agent", "run", "--config", self._write(name, table)])

    def present(self, count: int, *stations: str) -> None:
        """Wait until each of these stations (all that run, if none is named) knows exactly so many devices here."""
        for name in stations or [running for running in self.stations if running in self.children]:
            self.until(lambda: self.stations[name].station().present == count, f"{name} knows {count} devices")  # noqa: B023 - called at once

    def is_here(self, device: str, station: str = "central") -> bool:
        """Whether a station knows that a device is here."""
        return any(each["id"] == device and each["present"] for each in self.view(station, "/devices")["devices"])

    def report(self, name: str = "swarm") -> Fields:
        """What the devices of a swarm counted, as of now."""
        path = self.folder / f"{name}.json"
        path.unlink(missing_ok=True)
        self.children[name].process.send_signal(signal.SIGUSR1)
        self.until(path.exists, f"{name} has written its report")
        report: Fields = json.loads(path.read_text())
        return report

    def issue(self, station: str, tgt: str, fun: str, *arg: Any, **given: Any) -> str:
        """Give a station a job; its jid."""
        return self.stations[station].create_job({"tgt": tgt, "fun": fun, "arg": list(arg), **given}).jid

    def job(self, station: str, jid: str) -> JobView:
        """A job as a station sees it."""
        return self.stations[station].job(jid)

    def counts(self, station: str, jid: str) -> dict[str, int]:
        """The outcomes a station has of a job so far; none while it does not know the job."""
        try:
            return self.job(station, jid).counts
        except NotFound:
            return {}

    def waiting(self, station: str, jid: str) -> dict[str, int]:
        """The states of the devices without an outcome; none while the station does not know the job."""
        try:
            return self.job(station, jid).waiting
        except NotFound:
            return {}

    def occupy(self, site: str, tgt: str, devices: int, seconds: float, **given: Any) -> list[str]:
        """Give these devices as many sleeping jobs as they run at once, so that any other has to wait; their jids.

        Half of the time is left when all are seen to run: on a machine that is too slow for that they sleep longer.
        """
        begun = time.monotonic()
        jids = [self.issue(site, tgt, "test.sleep", seconds, **given) for _ in range(limits.DEVICE_RUNNING)]
        all_run = {"running": devices}
        self.until(lambda: all(self.counts(site, jid) or self.waiting(site, jid) == all_run for jid in jids), "all run")
        if not any(self.counts(site, jid) for jid in jids) and time.monotonic() - begun < seconds / 2:
            return jids
        for jid in jids:
            self.ended(site, jid)
        return self.occupy(site, tgt, devices, 2 * seconds, **given)

    def ended(self, station: str, jid: str) -> Ended:
        """Wait until a job is closed on a station; the job with its outcomes."""
        client = self.stations[station]
        self.until(lambda: client.job(jid).state == "closed", f"job {jid} is closed on {station}")
        return Ended(client.job(jid), list(client.outcomes(jid)))

    def command(self, *words: str, station: str = "central", status: int | None = None) -> Finished:
        """Run ``outstation`` with these words, as somebody at that station."""
        done = subprocess.run(
            [*program(), *words],
            env={**os.environ, "OUTSTATION_SOCKET": str(self.socket_of(station)), "NO_COLOR": "1"},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert status is None or done.returncode == status, done
        return Finished(done.returncode, done.stdout, done.stderr)

    def until(self, probe: Callable[[], object], what: str) -> None:
        """Wait until the probe's answer is true. Fails when a process of the system ends by itself."""
        self.wait_until(lambda: bool(probe()), SECONDS, what)

    def ask(
        self, station: str, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One raw request to a station's API: the HTTP status and the body."""
        with closing(UnixConnection(self.socket_of(station), SECONDS)) as connection:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            with connection.getresponse() as response:
                return response.status, response.read()

    def view(self, station: str, path: str = "/station") -> Fields:
        """An answer of a station's API as it is."""
        status, body = self.ask(station, "GET", path)
        assert status == 200, body
        return dict(json.loads(body))

    def counters(self, station: str) -> Counter[str]:
        """What a station counted so far, by name; of refusals with link and reason in it."""
        found: Counter[str] = Counter()
        for line in self.ask(station, "GET", "/metrics")[1].decode().splitlines():
            name, _, count = line.rpartition(" ")
            kind, _, labels = name.partition("{")
            if kind.endswith("_total") and not line.startswith("#"):
                found[kind.removeprefix("outstation_").removesuffix("_total") + labels] = int(count)
        return found

    def refusals(self, station: str) -> Counter[tuple[str, str]]:
        """What a station refused so far, by link and reason."""
        found: Counter[tuple[str, str]] = Counter()
        for name, count in self.counters(station).items():
            if name.startswith("refused"):
                _, link, _, reason, _ = name.split('"')
                found[link, reason] = count
        return found

    def log(self, name: str) -> str:
        """Everything a process wrote, in all its lives."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")


def assert_exactly_once(ended: Ended, devices: Iterable[str], outcome: str = "ok") -> None:
    """Every device has one outcome, this one; nobody is missing, nobody is counted twice."""
    wanted = sorted(devices)
    assert sorted(record.id for record in ended.outcomes) == wanted
    assert ended.job.expected == len(wanted)
    assert ended.job.counts == {outcome: len(wanted)}
    assert {record.outcome for record in ended.outcomes} == {outcome}


def assert_executed_once(report: Fields, jid: str, devices: int) -> None:
    """Every device of a swarm counted one execution of this job."""
    assert report["executed"][jid] == {"devices": devices, "executions": devices, "most": 1}


@contextmanager
def whole_system() -> Iterator[System]:
    """A system, and the certainty that nothing of it stays."""
    with System() as system, patch.dict(os.environ, TMPDIR=str(system.temporary())):
        yield system
        crashes = [name for name in system.children if "Traceback" in system.log(name)]
        assert not crashes, "\n".join(system.log(name)[-4000:] for name in crashes)
    assert processes(str(system.folder)) == []


@contextmanager
def one_site(devices: int, site: str = "lisbon", **settings: Any) -> Iterator[System]:
    """A master, a gateway that it has accepted, and a swarm that both know."""
    with whole_system() as started:
        started.add_master()
        started.add_gateway(site, "central", **settings)
        started.join(site)
        started.add_swarm(devices, site)
        started.present(devices)
        yield started
