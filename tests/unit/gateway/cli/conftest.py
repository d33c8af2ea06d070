"""The command line as tests run it: in a process of its own, on a terminal of its own, or in this process."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.peers.api_double import ApiDouble

ROOT = Path(__file__).resolve().parents[4]
PROCESS_SECONDS = 60
COLUMNS = 100
OBEYED = re.compile(r"\x1b\[[0-9;]*m|\r\x1b\[2K")
"""What the program itself may tell a terminal: colours, and to wipe the line of progress."""


@dataclass(frozen=True)
class Finished:
    """How a command line ended."""

    status: int
    out: str
    error: str = ""

    @property
    def seen(self) -> str:
        """What a person reads on the terminal, without colours and wiped lines."""
        return OBEYED.sub("", self.out).replace("\r\n", "\n")


class Shell:
    """Runs ``outstation`` against one socket."""

    def __init__(self, socket: Path, capture: pytest.CaptureFixture[str], home: Path) -> None:
        self._capture = capture
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "OUTSTATION_SOCKET": str(socket),
        }

    def here(self, *arguments: str) -> Finished:
        """Run it in this process, where coverage and speed are."""
        self._capture.readouterr()
        try:
            status = main(arguments)
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else 1
        captured = self._capture.readouterr()
        return Finished(status, captured.out, captured.err)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it in a process of its own, in a pipe."""
        return subprocess.Popen(
            [sys.executable, "-m", "gateway.cli.main", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> Finished:
        """Run it in a process of its own, in a pipe."""
        with self.start(*arguments) as process:
            out, error = process.communicate(timeout=PROCESS_SECONDS)
        return Finished(process.returncode, out, error)

    def on_terminal(self, *arguments: str, interrupt_when: str | None = None) -> Finished:
        """Run it on a terminal; press Ctrl-C once ``interrupt_when`` is on the screen."""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, COLUMNS))
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "gateway.cli.main", *arguments],
                cwd=ROOT,
                env=self.environment,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        screen = b""
        with process:
            while piece := _read(ours):
                screen += piece
                if interrupt_when is not None and interrupt_when.encode() in screen:
                    os.kill(process.pid, signal.SIGINT)
                    interrupt_when = None
            process.wait(PROCESS_SECONDS)
        os.close(ours)
        return Finished(process.returncode, screen.decode())


def _read(descriptor: int) -> bytes:
    ready, _, _ = select.select([descriptor], [], [], PROCESS_SECONDS)
    assert ready, "nothing came on the terminal"
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        # Linux says EIO on a terminal whose other end was closed.
        return b""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiDouble]:
    with ApiDouble(tmp_path / "api.sock") as double:
        yield double


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    session = Shell(tmp_path / "api.sock", capsys, tmp_path)
    for name in ("NO_COLOR", "OUTSTATION_DEBUG", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OUTSTATION_SOCKET", "TERM"):
        monkeypatch.setenv(name, session.environment[name])
    return session


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell starts what it runs in the background deaf to Ctrl-C, and that is handed down to our processes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
