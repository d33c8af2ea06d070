"""Stock Salt for ``bench reactor``: installed when it is not there, a master and one minion, and whoever asks them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from device_agent.errors import StationFailed
from gateway.bench.reactor_rules import DEVICE
from gateway.bench.trust_process import Side
from gateway.rehearsal import Rehearsal, free_ports

INSTALL_SECONDS: Final = 900.0
READY_SECONDS: Final = 180.0
ANSWER_SECONDS: Final = 1800.0
BUS_SECONDS: Final = 60.0
MASTER: Final = "salt-master"
MINION: Final = "salt-minion"


def installed(peers: Path) -> Path:
    """The Python of an environment with stock Salt in it, made when it is not there. Raises ``StationFailed``."""
    place = (peers / "salt").absolute()
    python = place / "bin" / "python"
    if (place / "bin" / MASTER).exists():
        return python
    steps = [
        [sys.executable, "-m", "venv", "--clear", str(place)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "salt"],
    ]
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _no_salt(str(error)) from error
        if done.returncode:
            raise _no_salt(done.stderr.strip()[-1000:])
    return python


def version(python: Path) -> str:
    """Which Salt it is."""
    words = [str(python), "-I", "-c", "import salt.version; print(salt.version.__version__)"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60.0, check=False)
    return done.stdout.strip()


class Stock:
    """A master with rules and one minion, with Salt's own defaults but for places, ports and keys."""

    def __init__(self, rehearsal: Rehearsal, python: Path, rules: list[dict[str, Any]]) -> None:
        self._rehearsal = rehearsal
        self._python = python
        self._rules = rules
        self._groups: list[int] = []
        config = self._config(MASTER)
        self.side = Side(
            "stock Salt",
            ["-I", "-W", "ignore", str(Path(__file__).with_name("reactor_reference.py")), str(config / "master")],
            bench="reactor",
            answer_seconds=ANSWER_SECONDS,
            python=str(python),
        )

    def start(self, stack: ExitStack) -> None:
        """Start both; returns when they answer to events. Raises ``StationFailed``."""
        publish, returns = free_ports(2)
        ports = {"publish_port": publish, "ret_port": returns}
        self._write(MASTER, "master", {"interface": "127.0.0.1", **ports, "auto_accept": True, "reactor": self._rules})
        minion = {"master": "127.0.0.1", "id": DEVICE, "publish_port": publish, "master_port": returns}
        self._write(MINION, "minion", minion)
        for name in (MASTER, MINION):
            words = [str(self._python), "-I", str(self._python.with_name(name)), "-c", str(self._config(name))]
            self._groups.append(self._rehearsal.start(name, words).process.pid)
        self._rehearsal.wait_until(lambda: _published(self._config(MASTER)), BUS_SECONDS, "Salt's master publishes")
        stack.enter_context(self.side)
        answer = self.side.ask(do="ready", seconds=READY_SECONDS)
        if not answer["ok"]:
            raise StationFailed("stock Salt does not react", error_id="bench.reactor", found=answer["found"])

    def stop(self) -> None:
        """Stop both, with whatever they started."""
        for name in (MINION, MASTER):
            if name in self._rehearsal.children:
                self._rehearsal.stop(name)
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    @property
    def groups(self) -> list[int]:
        """Its process groups."""
        return list(self._groups)

    def _config(self, name: str) -> Path:
        return self._rehearsal.folder / name

    def _write(self, name: str, role: str, settings: dict[str, Any]) -> None:
        folder = self._config(name)
        folder.mkdir()
        places = {
            "root_dir": str(folder),
            "pki_dir": str(folder / "pki"),
            "cachedir": str(folder / "cache"),
            "sock_dir": str(folder / "s"),
            "log_file": str(folder / "log"),
        }
        (folder / role).write_text(json.dumps({**places, **settings}), encoding="utf-8")


def _published(folder: Path) -> bool:
    """Whether the event bus of the master in this folder is there."""
    return any((folder / "s").glob("master_event_pub*"))


def _no_salt(found: str) -> StationFailed:
    return StationFailed(
        "stock Salt cannot be had, so there is nothing to compare with",
        error_id="bench.reactor",
        found=found,
        hint="make bench-peers gets it, and --peers says where it is",
    )
