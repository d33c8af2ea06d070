"""A daemon of stock Salt with a folder of its own, and the programs that stand beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.peers.finished import Finished
from tests.peers.processes import processes
from tests.peers.waiting import until

SECONDS = 120.0
"""How long a test waits for anything of Salt's; it says nothing about how long it takes."""

LOG_TAIL = 6000
Output = int | IO[str]


class SaltDaemon:
    """One process group at a time, always with the same folder and settings; leaving the context removes all of it."""

    words: tuple[str, ...] = ()
    """What else stands on its command line."""

    def __init__(self, programs: Path, role: str, settings: dict[str, Any]) -> None:
        self.programs = programs
        self.role = role
        # Salt makes sockets in it, whose paths may not be long.
        self.folder = Path(tempfile.mkdtemp(prefix=f"salt-{role}-"))
        self.settings: dict[str, Any] = {
            "root_dir": str(self.folder),
            "user": "root",
            "pki_dir": str(self.folder / "pki"),
            "sock_dir": str(self.folder / "sock"),
            "cachedir": str(self.folder / "cache"),
            "pidfile": str(self.folder / "pid"),
            "log_file": str(self.folder / "log"),
            "log_level_logfile": "info",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it with the settings as they are now, and return when it answers."""
        (self.folder / self.role).write_text(json.dumps(self.settings))
        command = [str(self.programs / f"salt-{self.role}"), "--config-dir", str(self.folder), *self.words]
        with (self.folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                process_group=0,
            )
        try:
            self.until(self.answers, f"the {self.role} answers")
        except BaseException:
            self.kill()
            raise

    def answers(self) -> bool:
        """Whether it is ready."""
        raise NotImplementedError

    @property
    def group(self) -> int:
        """Its process group."""
        assert self._process is not None, f"the {self.role} is not started"
        return self._process.pid

    def stop(self) -> None:
        """SIGTERM, as its unit does it; returns when no process of it is left."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to all its processes; nothing of it has a chance to say goodbye."""
        self._end(signal.SIGKILL)

    def hang(self) -> None:
        """Stop all its processes where they are: its lines stay up, and nothing comes."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End the hanging."""
        self._signal(signal.SIGCONT)

    def restart(self, **changed: Any) -> None:
        """Stop it, and start it with settings that may have changed."""
        self.stop()
        self.settings |= changed
        self.start()

    def run(self, program: str, *words: str) -> Finished:
        """Run one of Salt's programs beside this daemon, to its end."""
        with self.started(program, *words) as process:
            out, error = process.communicate(timeout=SECONDS)
            return Finished(process.returncode, out, error)

    @contextlib.contextmanager
    def started(self, program: str, *words: str, out: Output = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
        """One of Salt's programs as a process of its own, which ends with the block."""
        process = subprocess.Popen(
            [str(self.programs / program), "--config-dir", str(self.folder), *words],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE if out == subprocess.PIPE else out,
            text=True,
            process_group=0,
        )
        try:
            with process:
                try:
                    yield process
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{program} {' '.join(words)} did not end; {self.told()}") from None

    def until(self, probe: Callable[[], object], what: str) -> None:
        """Wait until the probe's answer is true. Fails with the daemon's log."""
        try:
            asyncio.run(until(lambda: self._alive() and probe(), SECONDS, what))
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.told()}") from None

    def log(self) -> str:
        """Everything it logged, in all its lives."""
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def told(self) -> str:
        """The ends of its log and of what it wrote on its standard output."""
        console = (self.folder / "console").read_text(errors="replace")
        return f"the {self.role}'s log ends:\n{self.log()[-LOG_TAIL:]}\nand its console:\n{console[-LOG_TAIL:]}"

    def _alive(self) -> bool:
        assert self._process is not None, f"the {self.role} is not started"
        assert self._process.poll() is None, f"the {self.role} ended with {self._process.returncode}"
        return True

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, f"the {self.role} is not started"
        os.killpg(self._process.pid, number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if number == signal.SIGTERM:
                process.send_signal(number)
                process.wait(SECONDS)
        finally:
            # What it left behind goes as well: it may not keep ports that the next one is to have.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(SECONDS)
            asyncio.run(
                until(lambda: not processes(str(self.folder)), SECONDS, f"the end of the {self.role}'s processes")
            )

    def _environment(self) -> dict[str, str]:
        # Its own packages and no others; what a program of it leaves in the temporary folder goes with ours.
        return {
            **os.environ,
            "PYTHONPATH": "",
            "PYTHONWARNINGS": "ignore",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.folder),
        }


def listens(port: int) -> bool:
    """Whether somebody listens there on loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
