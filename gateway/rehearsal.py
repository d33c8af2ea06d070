"""A whole system as child processes in a temporary folder, on loopback: for the demo and for benchmarks.

It starts the same programs with the same settings files an operator would write, and talks to them through the same
socket. It does not judge what they do.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from device_agent.errors import NotRunning, StationFailed
from gateway.cli.client import StationClient
from gateway.cli.key_client import KeyClient

READY_SECONDS = 60.0
STOP_SECONDS = 60.0
PROBE_SECONDS = 0.02
LOG_TAIL = 2000


@dataclass
class Child:
    """A process of the rehearsal and where it writes its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def log_tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]


class Rehearsal:
    """Starts, finds and stops the processes. Leaving the context stops all of them, last started first."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="outstation-"))
        self.children: dict[str, Child] = {}
        self._temporary: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(list(self.children)):
            self.stop(name)
        # An interruption may have come between the birth of a process and its entry in the list.
        for pid in _own_children(str(self.folder)):
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def temporary(self) -> Path:
        """Where the processes make their own temporary files, so that a killed one leaves nothing elsewhere."""
        if self._temporary is None:
            # Beside our folder, where tokens are: a broker becomes a user of its own, who has to reach its settings.
            self._temporary = Path(tempfile.mkdtemp(prefix="outstation-tmp-"))
            self._temporary.chmod(0o711)
        return self._temporary

    def master_settings(self, name: str, port: int) -> str:
        """Write a master's settings; the file."""
        return self._write(name, {**self._places(name), "sites": {"listen": f"tcp://127.0.0.1:{port}"}})

    def gateway_settings(self, name: str, broker: Mapping[str, Any], **given: Any) -> str:
        """Write a gateway's settings; the file."""
        return self._write(name, {**self._places(name), "broker": dict(broker), **given})

    def run_station(self, name: str, role: str) -> StationClient:
        """Start a station with the settings it has; returns when it answers."""
        self.start(name, [role, "run", "--config", str(self.folder / f"{name}.yaml")])
        return self._answering(name)

    def _places(self, name: str) -> dict[str, Any]:
        return {"name": name, "state_dir": str(self.folder / name), "socket": str(self.socket_of(name))}

    def start_agent(
        self, name: str, grains: Mapping[str, Any], token: str | None, given: Mapping[str, Any] | None = None
    ) -> Child:
        """Start a real agent as a process of its own, with a token, or with what it is given instead."""
        settings: dict[str, Any] = {
            "serial": name,
            "state_dir": str(self.folder / name),
            "grains": dict(grains),
            "grains_file": str(self.folder / f"{name}.grains"),
            **(given or {}),
        }
        if token is not None:
            file = self.folder / f"{name}.token"
            file.write_text(token, encoding="ascii")
            settings["token_file"] = str(file)
        return self.start(name, ["agent", "run", "--config", self._write(name, settings)])

    def start_swarm(self, devices: int, token: str) -> Child:
        """Start many agents in one process, with one token; its report is ``swarm.json`` in the folder."""
        report = str(self.folder / "swarm.json")
        file = self.folder / "swarm.token"
        file.write_text(token, encoding="ascii")
        return self.start("swarm", ["swarm", "--devices", str(devices), "--token-file", str(file), "--report", report])

    def start(self, name: str, words: Sequence[str]) -> Child:
        """Start ``outstation`` with these words, or another program when the first word is a path."""
        command = list(words) if words[0].startswith("/") else [*program(), *words]
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            # In a group of its own: Ctrl-C on the terminal is for us, and we stop the children in order.
            # What a library leaves in the temporary folder when it is stopped early goes with ours.
            place = {**os.environ, "TMPDIR": str(self.temporary())}
            process = subprocess.Popen(
                command, env=place, stdin=subprocess.DEVNULL, stdout=file, stderr=file, process_group=0
            )
        self.children[name] = Child(name, process, log)
        return self.children[name]

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop one process; returns its exit status."""
        child = self.children.pop(name)
        child.process.send_signal(number)
        try:
            return child.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.process.kill()
            return child.process.wait(STOP_SECONDS)

    def socket_of(self, name: str) -> Path:
        """A station's socket."""
        return self.folder / f"{name}.sock"

    def wait_until(self, probe: Callable[[], bool], seconds: float, what: str) -> None:
        """Return when the probe is true. Raises ``StationFailed`` when time is up or a process has ended by itself."""
        deadline = time.monotonic() + seconds
        while True:
            for child in self.children.values():
                if child.process.poll() is not None:
                    raise StationFailed(
                        f"{child.name} ended by itself with status {child.process.returncode}",
                        found=child.log_tail().strip() or "nothing in its log",
                    )
            if probe():
                return
            if time.monotonic() > deadline:
                raise StationFailed(f"gave up after {seconds:.0f} s waiting until {what}", found=self._tails())
            time.sleep(PROBE_SECONDS)

    def _answering(self, name: str) -> StationClient:
        client = StationClient(self.socket_of(name))

        def answers() -> bool:
            try:
                return client.station().name == name
            except NotRunning:
                return False

        self.wait_until(answers, READY_SECONDS, f"{name} answers")
        return client

    def _write(self, name: str, settings: Mapping[str, Any]) -> str:
        path = self.folder / f"{name}.yaml"
        # JSON is YAML too, and needs no second library here.
        path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
        return str(path)

    def _tails(self) -> str:
        return "\n".join(f"--- {child.name}\n{child.log_tail()}" for child in self.children.values())


def join_token(gateway: StationClient, *, uses: int, name: str = "") -> str:
    """A token with which devices join a gateway's site, over loopback."""
    broker = gateway.station().broker or {}
    wish = {"uses": uses, "name": name, "address": f"127.0.0.1:{broker['enroll_port']}"}
    return KeyClient(gateway).new_tokens(wish)[0].text


def program() -> list[str]:
    """The command that runs ``outstation`` with this interpreter."""
    return [sys.executable, "-m", "gateway.cli.main"]


def _own_children(folder: str) -> list[int]:
    """Processes this one has started and not waited for, with the folder in their command (proc(5))."""
    found: list[int] = []
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children = listing.read_text(encoding="ascii").split()
            found += [int(pid) for pid in children if folder.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def free_ports(count: int) -> list[int]:
    """So many different TCP ports on loopback that nobody uses at this moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def accepts(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
