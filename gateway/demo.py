"""``outstation demo``: the whole system on this machine, narrated. Nothing in it is mocked."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, StationFailed
from gateway.broker.embedded import COMFORTABLE_DEVICES
from gateway.broker.mosquitto import find_mosquitto
from gateway.cli.client import StationClient
from gateway.rehearsal import Rehearsal, free_port, program

MASTER, SITE = "central", "lisbon"
DOORS = {
    "door-north": {"kind": "door", "floor": 0},
    "door-south": {"kind": "door", "floor": 0},
    "door-roof": {"kind": "door", "floor": 4},
}
LINES_SHOWN = 4
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
            demo.start_stations()
            demo.start_devices()
            demo.run_jobs()
            demo.lose_a_device()
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
        self._port = free_port()
        self._master: StationClient

    def start_stations(self) -> None:
        """A master, and a gateway with a broker of its own that asks to join."""
        _step(f"A master, {MASTER}, where operators work, and a gateway, {SITE}, as it stands on a site")
        self._master = self._rehearsal.start_master(MASTER)
        mode = "managed" if find_mosquitto() else "embedded"
        self._rehearsal.start_gateway(SITE, self._master, {"mode": mode, "port": self._port})
        if mode == "embedded":
            _say("    mosquitto is not installed: using the small broker inside the gateway.")
            if self._devices > COMFORTABLE_DEVICES:
                _say(
                    f"    WARNING: it is fine for about {COMFORTABLE_DEVICES} devices; apt install mosquitto for more."
                )
        self._wait(lambda: any(key.state == "pending" for key in self._master.keys().keys), "the gateway's key is seen")
        _say("    The gateway's key waits in quarantine until somebody accepts it:")
        self._command(["keys", "accept", SITE])

    def start_devices(self) -> None:
        """A swarm, and a few agents as processes of their own."""
        _step(f"{self._devices} camera agents in one process, and {len(DOORS)} door agents as processes of their own")
        self._rehearsal.start_swarm(self._devices, SITE, self._port)
        for name, grains in DOORS.items():
            self._rehearsal.start_agent(name, SITE, self._port, grains)
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

    def _job(self, words: Sequence[str], expected: int) -> None:
        self._command(["run", *words])
        job = self._master.jobs(1)[0]
        if job.expected != expected or job.counts != {"ok": expected}:
            raise StationFailed(
                f"job {job.jid} did not end as it should",
                found=f"{job.expected} expected, {job.counts}",
                allowed=f"{expected} ok",
            )

    def _command(self, words: Sequence[str], status: int = EXIT_OK) -> str:
        """Run a command as a person would, and show what it says; the middle of long output is left out."""
        _say(f"\n    $ outstation {' '.join(shlex.quote(word) for word in words)}")
        began = time.monotonic()
        done = subprocess.run(
            [*program(), *words],
            env={**os.environ, "OUTSTATION_SOCKET": str(self._rehearsal.socket_of(MASTER)), "NO_COLOR": "1"},
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
            _say(f"    {line}")
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
