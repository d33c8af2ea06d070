"""``outstation demo``: the whole system on this machine, narrated. Nothing in it is mocked."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, StationFailed
from gateway.broker.embedded import COMFORTABLE_DEVICES
from gateway.broker.start import find_mosquitto
from gateway.cli.client import StationClient
from gateway.cli.fleet_views import shown
from gateway.cli.key_client import KeyClient
from gateway.cli.key_views import KeyView
from gateway.rehearsal import Rehearsal, free_ports, program

MASTER, SITE = "central", "lisbon"
DOORS = {
    "door-north": {"kind": "door", "floor": 0},
    "door-south": {"kind": "door", "floor": 0},
    "door-roof": {"kind": "door", "floor": 4},
}
BY_TOKEN, BY_HAND = ("door-north", "door-south"), "door-roof"
LINES_SHOWN = 4
COLUMNS_SHOWN = 116
JOIN_SECONDS = 120.0
COMMAND_SECONDS = 120.0


def main(devices: int, keep: bool) -> int:
    """Run the demo; returns its exit status: 0 only when everything did what it should."""
    began = time.monotonic()
    everybody = devices + len(DOORS)
    # SIGTERM ends it as Ctrl-C does: nothing may be left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Rehearsal() as rehearsal:
            demo = Demo(rehearsal, devices)
            _say(f"Outstation: one master, one site, {everybody} devices. All real, all on this machine,")
            _say(f"on loopback, in {rehearsal.folder}.")
            demo.found_fleet()
            demo.start_site()
            demo.start_devices()
            demo.run_jobs()
            demo.lose_a_device()
            demo.revoke_a_device()
            if keep:
                demo.stay()
            _step("Stopping everything")
        _say(f"    Nothing is left running. The whole took {time.monotonic() - began:.0f} s.")
    except StationFailed as error:
        sys.stdout.flush()
        sys.stderr.write(f"error: {error}\n")
        return EXIT_NOT_ALL_OK
    except KeyboardInterrupt:
        _say("\nInterrupted; everything is stopped.")
        return 128 + signal.SIGINT
    return EXIT_OK


class Demo:
    """The steps, in order."""

    def __init__(self, rehearsal: Rehearsal, devices: int) -> None:
        self._rehearsal = rehearsal
        self._devices = devices
        self._sites_port, self._port, self._enroll_port = free_ports(3)
        self._master: StationClient
        self._gateway: StationClient

    def found_fleet(self) -> None:
        """The root keys, and a master that they vouch for."""
        _step("A fleet: three root keys, two of which decide who is a master. On a real day they then go offline")
        settings = Path(self._rehearsal.master_settings(MASTER, self._sites_port)).name
        self._command(["fleet", "init", "--folder", "fleet"])
        _step(f"A master, {MASTER}, where operators work, added to the fleet with two of the root keys")
        described = f"{MASTER}.master"
        self._command(["master", "init", "--config", settings, "--file", described])
        self._command(["fleet", "add-master", described, "--root-shell", "--folder", "fleet"])
        self._command(["master", "init", "--config", settings, "--root-list", "fleet/root-lists"])
        self._master = self._rehearsal.run_station(MASTER, "master")

    def start_site(self) -> None:
        """A gateway with a broker of its own that asks to join."""
        _step(f"A gateway, {SITE}, as it stands on a site: it joins with a token, and waits until it is accepted")
        mode = "managed" if find_mosquitto() else "embedded"
        broker = {"mode": mode, "host": "127.0.0.1", "port": self._port, "enroll_port": self._enroll_port}
        settings = Path(self._rehearsal.gateway_settings(SITE, broker)).name
        if mode == "embedded":
            _say("    mosquitto is not installed: using the small broker inside the gateway.")
            if self._devices > COMFORTABLE_DEVICES:
                _say(
                    f"    WARNING: it is fine for about {COMFORTABLE_DEVICES} devices; apt install mosquitto for more."
                )
        file = "site.token"
        self._command(["sites", "token", "--file", file])
        self._at_site(["gateway", "join", "--token-file", file, "--config", settings])
        self._gateway = self._rehearsal.run_station(SITE, "gateway")
        self._wait(lambda: any(key.state == "pending" for key in self._master.keys().keys), "the gateway's key is seen")
        self._command(["keys", "accept", SITE])
        self._wait(lambda: shown(self._gateway).joined, "the gateway has its certificate")

    def start_devices(self) -> None:
        """A swarm and two agents that join by token, and one that is accepted by its fingerprint."""
        _step(f"{self._devices} camera agents in one process join with one token, good for so many")
        self._rehearsal.start_swarm(self._devices, self._token(["--uses", str(self._devices)]))
        _step("Two door agents as processes of their own, each with a token of its own")
        for name in BY_TOKEN:
            self._rehearsal.start_agent(name, DOORS[name], self._token(["--name", name]))
        _step(f"A third one, {BY_HAND}, has none: it waits until somebody compares its fingerprint")
        self._at_site(["keys", "window", "open", "--for", "5m", "--max", "1"])
        root = shown(self._gateway).root or ""
        agent = {"site": SITE, "root": root, "broker": {"host": "127.0.0.1", "port": self._enroll_port}}
        self._rehearsal.start_agent(BY_HAND, DOORS[BY_HAND], None, agent)
        self._wait(lambda: bool(self._waiting_devices()), f"{BY_HAND} asks to join")
        self._at_site(["keys", "list", "--state", "pending"])
        self._at_site(["keys", "accept", BY_HAND, "--fingerprint", self._waiting_devices()[0].fingerprint])
        everybody = self._devices + len(DOORS)
        self._wait(lambda: self._master.station().present == everybody, f"the master knows {everybody} devices")
        self._command(["sites", "list"])

    def run_jobs(self) -> None:
        """Jobs by glob, by grain, by a compound target, and a shell command."""
        everybody = self._devices + len(DOORS)
        _step("A job for everybody: given to the master, run by every device behind the gateway")
        self._job(["*", "test.ping"], everybody)
        _step("By grain: facts that devices report of themselves")
        self._job(["-G", "kind:door", "grains.get", "floor"], len(DOORS))
        _step("By a compound target")
        self._job(["-C", "G@kind:door and not door-roof", "test.echo", "hello from the master"], 2)
        _step("A shell command, on one device")
        self._job(["door-roof", "cmd.run", "echo up since $(cut -d. -f1 /proc/uptime) seconds"], 1)

    def lose_a_device(self) -> None:
        """An agent is killed: its silence has a name, at once."""
        _step("kill -9 on the agent of door-roof. Nothing waits for a time-out, and the silence is explained:")
        self._rehearsal.stop("door-roof", signal.SIGKILL)
        everybody = self._devices + len(DOORS)
        self._wait(lambda: self._master.station().present == everybody - 1, "the master knows that door-roof is gone")
        output = self._command(["run", "door-*", "test.ping"], status=EXIT_NOT_ALL_OK)
        if "unreachable" not in output:
            raise StationFailed("the killed device was not reported as unreachable", found=output)

    def revoke_a_device(self) -> None:
        """A device is stolen: the site itself puts it out, and nothing reaches it any more."""
        _step("door-south is stolen. The site revokes it by itself, with or without a master:")
        self._at_site(["keys", "revoke", "door-south", "--why", "stolen", "--yes"])
        self._wait(lambda: self._gateway.station().devices == self._devices + len(DOORS) - 1, "it is out")
        self._job(["door-[ns]*", "test.ping"], 1)
        self._at_site(["audit", "list", "--action", "keys.revoke"])

    def stay(self) -> None:
        """Keep everything up until Ctrl-C."""
        _step("Everything stays up until Ctrl-C. In another terminal:")
        words = " ".join(shlex.quote(word) for word in program())
        _say(f"    export OUTSTATION_SOCKET={self._rehearsal.socket_of(MASTER)}")
        _say(f"    alias outstation={shlex.quote(words)}")
        _say("    outstation run '*' test.ping")
        _say(f"    The gateway answers too: outstation --socket {self._rehearsal.socket_of(SITE)} devices list")
        try:
            signal.pause()
        except KeyboardInterrupt:
            _say("")

    def _token(self, words: Sequence[str]) -> str:
        """A join token, made as a person would."""
        address = f"127.0.0.1:{self._enroll_port}"
        output = self._at_site(["keys", "token", "new", *words, "--address", address, "--json"])
        text: str = json.loads(output.splitlines()[0])["text"]
        return text

    def _waiting_devices(self) -> list[KeyView]:
        return [key for page in KeyClient(self._gateway).pages({"state": "pending"}) for key in page.keys]

    def _at_site(self, words: Sequence[str]) -> str:
        return self._command(words, at=SITE)

    def _job(self, words: Sequence[str], expected: int) -> None:
        self._command(["run", *words])
        job = self._master.jobs(1)[0]
        if job.expected != expected or job.counts != {"ok": expected}:
            raise StationFailed(
                f"job {job.jid} did not end as it should",
                found=f"{job.expected} expected, {job.counts}",
                allowed=f"{expected} ok",
            )

    def _command(self, words: Sequence[str], status: int = EXIT_OK, at: str = MASTER) -> str:
        """Run a command as a person at a station would, and show what it says, without the middle of long output."""
        _say(f"\n    {at}$ outstation {' '.join(shlex.quote(word) for word in words)}")
        began = time.monotonic()
        done = subprocess.run(
            [*program(), *words],
            env={**os.environ, "OUTSTATION_SOCKET": str(self._rehearsal.socket_of(at)), "NO_COLOR": "1"},
            cwd=self._rehearsal.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
            text=True,
            check=False,
        )
        took = time.monotonic() - began
        lines = done.stdout.splitlines()
        left_out = len(lines) - 2 * LINES_SHOWN
        if left_out > 1:
            lines = [*lines[:LINES_SHOWN], f"… {left_out} more lines …", *lines[-LINES_SHOWN:]]
        for line in lines:
            _say(f"    {line if len(line) <= COLUMNS_SHOWN else line[:COLUMNS_SHOWN] + ' …'}")
        if done.returncode != status:
            raise StationFailed(
                f"`outstation {' '.join(words)}` ended with status {done.returncode}", allowed=f"status {status}"
            )
        _say(f"    (exit status {done.returncode}, {took:.1f} s)")
        return done.stdout

    def _wait(self, probe: Callable[[], bool], what: str) -> None:
        self._rehearsal.wait_until(probe, JOIN_SECONDS, what)


def _step(text: str) -> None:
    _say(f"\n== {text}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
