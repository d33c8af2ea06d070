"""``bench fanout``: one job to many devices, whole system and lean reference, same broker and same devices.

Ours is measured by the master itself: from the moment its API takes the job to the moment it closes it, which is after
the last return is committed there. The reference publishes the very message a gateway would, and counts answers on a
raw socket; meanwhile the gateway is stopped, so that nobody else is served. Devices verify, open, run and seal in both;
whether they did is asked of them, since the reference cannot read their answers. Both are measured after one round of
warming up, once every process has become quiet.
"""

from __future__ import annotations

import json
import secrets
import signal
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_agent.clock import Clock
from device_agent.errors import EXIT_OK, StationFailed
from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.jid import JidMaker
from device_agent.swarm import allow_open_files
from device_agent.trust import notices
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.replay import next_seq
from device_agent.trust.signed_job import ALL, SALT_BYTES, JobHeader, Order, seal_for_group
from gateway.bench.collector import Collector
from gateway.bench.figures import Measured, Used, middle, record, show
from gateway.bench.repeats import repeated, stop_when_told
from gateway.bench.usage import Usage, cpu_seconds, usages
from gateway.bench.witness import Witness
from gateway.broker.mosquitto import settings_text
from gateway.broker.start import find_mosquitto
from gateway.cli.fleet_views import shown, site_token
from gateway.cli.output import Output, standard_output
from gateway.cli.text import safe
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.fleet.station_files import StationFiles
from gateway.jobs.collect import CONFIRM_SECONDS
from gateway.rehearsal import Rehearsal, accepts, free_ports, join_token

BENCH = "fanout"
FUNCTION = "test.ping"
HOST = "127.0.0.1"
MASTER = "central"
SITE = "bench"
MEANING = {
    "ours": "from the API taking the job to the last return on the master's disk",
    "reference": "a bare publisher and collector with the same broker and the same devices",
}

BROKER_SECONDS = 10.0
KEY_SECONDS = 30.0
PRESENT_SECONDS = 60.0
PRESENT_SECONDS_PER_DEVICE = 0.02
JOB_SECONDS = 120.0
QUIET_SECONDS = 60.0

LOOK_SECONDS = 0.1
"""Between two looks whether the job is closed. The master stamps the close itself, so this adds nothing to the time;
its count of open jobs is in memory, so a look costs it a millisecond, and no listener makes it build events."""

QUIET_WINDOW_SECONDS = 0.8

QUIET_CPU_SHARE = 0.15
"""Of one core, for all processes together: ten thousand devices that only watch their clocks take less."""

ANSWER_BYTES = 100
"""A sealed return is longer than this, a sealed word that a device is still there is shorter."""

REPORT_SECONDS = 30.0


@dataclass(frozen=True)
class Timed:
    """Seconds of one measurement, and what each process used meanwhile."""

    seconds: float
    used: dict[str, Usage]


class Fanout:
    """The system under measurement, in its rehearsal."""

    def __init__(self, rehearsal: Rehearsal, devices: int, output: Output) -> None:
        self._rehearsal = rehearsal
        self._devices = devices
        self._output = output
        self._clock = Clock()
        self._jids = JidMaker()
        self._fleet = RehearsedFleet(rehearsal.folder / "fleet")
        self._sites_port, self._port, self._enroll_port = free_ports(3)
        self._seq = 0
        self._master = Witness(rehearsal.socket_of(MASTER))
        self._gateway = Witness(rehearsal.socket_of(SITE))

    def start(self) -> None:
        """Start everything, and wait until every device is present at the master."""
        self._output.doing("starting a broker, a master and a gateway")
        self._start_broker()
        folder = self._rehearsal.folder
        self._fleet.add_master(MASTER, folder / MASTER, address=f"tcp://{HOST}:{self._sites_port}")
        self._rehearsal.master_settings(MASTER, self._sites_port)
        master = self._rehearsal.run_station(MASTER, "master")
        broker = {"mode": "external", "host": HOST, "port": self._port, "enroll_port": self._enroll_port}
        self._rehearsal.gateway_settings(SITE, broker)
        self._fleet.join(folder / SITE, site_token(master, None).token)
        gateway = self._rehearsal.run_station(SITE, "gateway")
        self._rehearsal.wait_until(
            lambda: any(key.site == SITE for key in master.keys().keys), KEY_SECONDS, "the gateway has shown its key"
        )
        master.decide_key(SITE, "accept", None)
        self._rehearsal.wait_until(lambda: shown(gateway).joined, KEY_SECONDS, "the gateway has its certificate")
        self._rehearsal.start_swarm(self._devices, join_token(gateway, uses=self._devices))
        self._wait_present()

    def repeat(self) -> Measured:
        """Measure ours and the reference once each. Raises ``StationFailed`` when any answer is missing."""
        if SITE not in self._rehearsal.children:
            self._output.doing("starting the gateway again")
            self._rehearsal.run_station(SITE, "gateway")
            self._wait_present()
        self._output.doing("measuring the whole system")
        self._job()
        ours = self._job()
        self._output.doing("measuring the reference")
        # It would be served the answers too. It goes once it has confirmed all returns, so that none are sent again.
        self._wait_quiet()
        self._rehearsal.stop(SITE)
        reference = self._reference()
        return Measured(self._devices, ours.seconds, reference.seconds, _processes(ours.used, reference.used))

    def show_logs(self) -> None:
        """The end of every log, for the figure that is not there."""
        self.clear()
        for child in self._rehearsal.children.values():
            self._output.note((f"--- {_shown(child.name)}", "bold"))
            for line in child.log_tail().splitlines():
                self._output.note(safe(line))

    def clear(self) -> None:
        """Wipe the line of progress."""
        self._output.done()

    def _start_broker(self) -> None:
        program = find_mosquitto()
        if program is None:
            raise StationFailed("mosquitto is not installed", error_id="bench.no_broker", hint="apt install mosquitto")
        settings = self._rehearsal.folder / "mosquitto.conf"
        # Who may come in is not what is measured: this broker lets everybody in.
        doors = settings_text(HOST, self._port) + f"listener {self._enroll_port} {HOST}\n"
        settings.write_text(doors, encoding="utf-8")
        self._rehearsal.start("mosquitto", [program, "-c", str(settings)])
        self._rehearsal.wait_until(lambda: accepts(HOST, self._port), BROKER_SECONDS, "the broker accepts connections")

    def _wait_present(self) -> None:
        def present() -> bool:
            time.sleep(LOOK_SECONDS)
            here, there = self._gateway.standing(), self._master.standing()
            self._output.doing(f"{there.present:,} of {self._devices:,} devices are present at the master")
            return here.present == there.present == self._devices and not here.spool_pending

        seconds = PRESENT_SECONDS + PRESENT_SECONDS_PER_DEVICE * self._devices
        self._rehearsal.wait_until(present, seconds, f"{self._devices} devices are present at the master")

    def _wait_quiet(self, *others: int) -> None:
        """Wait until what was done before is over in every process."""
        pids = [*self._pids().values(), *others]

        def quiet() -> bool:
            before = sum(map(cpu_seconds, pids))
            time.sleep(QUIET_WINDOW_SECONDS)
            return sum(map(cpu_seconds, pids)) - before < QUIET_CPU_SHARE * QUIET_WINDOW_SECONDS

        self._rehearsal.wait_until(quiet, QUIET_SECONDS, "every process is quiet")

    def _job(self) -> Timed:
        """One job through the whole system."""
        self._wait_quiet()
        pids = self._pids()
        before = usages(pids)
        jid = self._master.create_job({"tgt": "*", "fun": FUNCTION}).jid

        def closed() -> bool:
            time.sleep(LOOK_SECONDS)
            return not self._master.standing().jobs_open and self._master.times(jid).closed is not None

        self._rehearsal.wait_until(closed, JOB_SECONDS, f"job {jid} is closed")
        used = _since(before, usages(pids))
        times = self._master.times(jid)
        assert times.closed is not None
        if times.counts != {"ok": self._devices}:
            raise StationFailed(
                "not every device answered ok, so there is no figure",
                error_id="bench.incomplete",
                where=f"job {jid}",
                found=", ".join(f"{count} {outcome}" for outcome, count in times.counts.items()) or "no outcome",
                allowed=f"{self._devices} ok",
            )
        # The gateway tells the devices later that their returns are kept: that must not fall into the next measurement.
        time.sleep(CONFIRM_SECONDS)
        return Timed(times.closed - times.issued, used)

    def _reference(self) -> Timed:
        """The same message published by the reference, and the same answers counted."""
        where = (topics.device_up(SITE, "+", "f"), topics.group_job(SITE), topics.group_ack(SITE))
        with Collector(HOST, self._port, *where) as collector:
            self._reference_round(collector)
            return self._reference_round(collector)

    def _reference_round(self, collector: Collector) -> Timed:
        self._wait_quiet(collector.pid)
        pids = {**self._pids(), "reference": collector.pid}
        jid, payload, acknowledge = self._as_published()
        before = usages(pids)
        seconds = collector.round(payload, acknowledge, self._devices, ANSWER_BYTES)
        used = _since(before, usages(pids))
        executed = self._executed(jid)
        if executed != {"devices": self._devices, "executions": self._devices, "most": 1}:
            raise StationFailed(
                "the devices did not do the work, so there is no figure",
                error_id="bench.incomplete",
                found=str(executed),
                allowed=f"{self._devices} devices, each of which ran it once",
            )
        return Timed(seconds, used)

    def _as_published(self) -> tuple[str, bytes, bytes]:
        """A fresh job's jid, and what a gateway publishes for it: the job to every device, and the confirmation.

        Signed and sealed with the keys of the gateway, which is stopped.
        """
        state = self._rehearsal.folder / SITE
        signing, _ = StationFiles(state).keys()
        epoch, key = _group_key(state / "station.sqlite", signing.kid)
        now = self._clock.wall()
        self._seq = next_seq(self._seq, now)
        header = JobHeader(
            sub=ALL,
            site=SITE,
            issued=int(now),
            expires=int(now + limits.JOB_EXPIRY_SECONDS),
            jid=self._jids.next(now),
            seq=self._seq,
            tgt="*",
            epoch=epoch,
        )
        job = seal_for_group(signing, header, Order(fun=FUNCTION, user="bench"), key, secrets.token_bytes(SALT_BYTES))
        # Places are given from 0 on, and these are the only devices this site ever had.
        everyone = bitmap.pack(range(self._devices))
        acknowledge = notices.sign_ack(signing, site=SITE, jids=[header.jid], bitmap=everyone, issued=int(now))
        return header.jid, job_delivery(job, limits.JOB_EXPIRY_SECONDS, everyone), acknowledge

    def _executed(self, jid: str) -> dict[str, int]:
        """What the devices counted of a job, each for itself."""
        report = self._rehearsal.folder / "swarm.json"
        report.unlink(missing_ok=True)
        self._rehearsal.children["swarm"].process.send_signal(signal.SIGUSR1)
        self._rehearsal.wait_until(report.exists, REPORT_SECONDS, "the devices have written their report")
        executed: dict[str, int] = json.loads(report.read_bytes())["executed"].get(jid, {})
        return executed

    def _pids(self) -> dict[str, int]:
        return {_shown(name): child.process.pid for name, child in self._rehearsal.children.items()}


def main(devices: int, repeat: int, as_json: bool) -> int:
    """Run the benchmark; the exit status. Raises ``StationFailed`` when any answer is missing."""
    output = standard_output()
    allow_open_files(devices)
    stop_when_told()
    params = {"devices": devices, "repeat": repeat, "function": FUNCTION}

    def lines(measured: Measured, **more: Any) -> list[dict[str, Any]]:
        return [record(BENCH, params, measured, **more)]

    with Rehearsal() as rehearsal:
        fanout = Fanout(rehearsal, devices, output)
        try:
            fanout.start()
            repeats = repeated(output, repeat, fanout.repeat, lines if as_json else None)
        except StationFailed as error:
            if error.error_id.startswith("bench."):
                # What the rehearsal itself gives up on comes with the logs already.
                fanout.show_logs()
            raise
        finally:
            fanout.clear()
    if as_json:
        for line in lines(middle(repeats), median=True):
            output.json(line)
    else:
        times = "once" if repeat == 1 else f"{repeat} times"
        show(output, f"one {FUNCTION} to {devices:,} devices, {times}, every answer ok", MEANING, repeats)
    return EXIT_OK


def _group_key(store: Path, kid: bytes) -> tuple[int, bytes]:
    """The newest group key in a stopped gateway's store."""
    with closing(sqlite3.connect(store)) as connection:
        found = connection.execute("SELECT epoch, key FROM epochs WHERE kid = ? ORDER BY epoch DESC", (kid,)).fetchone()
    assert found is not None
    return found[0], found[1]


def _shown(name: str) -> str:
    return {MASTER: "master", SITE: "gateway"}.get(name, name)


def _since(before: dict[str, Usage], after: dict[str, Usage]) -> dict[str, Usage]:
    return {name: usage.since(before[name]) for name, usage in after.items()}


def _processes(ours: dict[str, Usage], reference: dict[str, Usage]) -> dict[str, Used]:
    """What each process used; the gateway has no part in the second measurement, the reference none in the first."""
    return {
        name: Used(
            ours[name].cpu_seconds if name in ours else None,
            reference[name].cpu_seconds if name in reference else None,
            max(found[name].peak_rss_bytes for found in (ours, reference) if name in found),
        )
        for name in sorted({*ours, *reference}, key=["master", "gateway", "mosquitto", "swarm", "reference"].index)
    }
