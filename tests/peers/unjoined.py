"""A gateway as it is after an install: real processes, settings without a name, and a master that it can join."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from gateway.cli.failures import INTERRUPTED
from gateway.rehearsal import program
from tests.peers.broker import free_port
from tests.peers.finished import Finished
from tests.peers.system import QUICK, ROOT, SECONDS, System


@dataclass
class Unjoined:
    """The gateway, whose process is ``gateway`` in the system; its folder stands for /etc/outstation."""

    system: System
    folder: Path

    @property
    def config(self) -> Path:
        """Its settings."""
        return self.folder / "gateway.yaml"

    @property
    def piece(self) -> Path:
        """What a join writes."""
        return self.folder / "gateway.d" / "50-join.yaml"

    @property
    def pid(self) -> int:
        """Its process."""
        return self.system.children["gateway"].process.pid

    def type(self, *words: str, status: int | None = None, stdin: str | None = None) -> Finished:
        """Run ``outstation gateway join`` with these words, and the settings of this gateway."""
        done = subprocess.run(
            [*program(), "gateway", "join", *words, "--config", str(self.config)],
            env={**os.environ, "NO_COLOR": "1"},
            cwd=ROOT,
            input=stdin or "",
            capture_output=True,
            timeout=SECONDS,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert status is None or done.returncode == status, done
        return Finished(done.returncode, done.stdout, done.stderr)

    def says(self, words: Sequence[str], what: str) -> None:
        """Wait until a join with these words says this, then interrupt it."""
        said = self.folder / "said"
        with said.open("w") as file:
            command = [*program(), "gateway", "join", *words, "--config", str(self.config)]
            joining = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=ROOT)
        try:
            self.system.until(lambda: what in said.read_text(), f"the join says: {what}")
        finally:
            joining.send_signal(signal.SIGINT)
            joining.wait(SECONDS)
        assert joining.returncode == INTERRUPTED

    def name(self) -> str:
        """Who answers at its socket."""
        return self.system.stations["gateway"].station().name

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it, with more in its environment; returns when it answers."""
        with patch.dict(os.environ, environment or {}):
            self.system.start("gateway", ["gateway", "run", "--config", str(self.config)])
        self.system.answering("gateway")

    def start_unasked(self) -> None:
        """Start it; it need not answer yet."""
        self.system.start("gateway", ["gateway", "run", "--config", str(self.config)])

    def log(self) -> str:
        """What it has said so far."""
        return self.system.children["gateway"].log.read_text(encoding="utf-8")

    def stop(self) -> int:
        """Stop it in order; its exit status."""
        return self.system.stop("gateway", signal.SIGTERM)


def unjoined(system: System) -> Unjoined:
    """A gateway that was installed and never told anything, not started yet."""
    folder = system.folder / "etc"
    folder.mkdir()
    gateway = Unjoined(system, folder)
    places = {"state_dir": str(system.state_of("gateway")), "socket": str(system.socket_of("gateway"))}
    broker = {"host": "127.0.0.1", "port": free_port(), "enroll_port": free_port()}
    gateway.config.write_text(json.dumps({**places, "broker": broker, **QUICK}))
    return gateway
