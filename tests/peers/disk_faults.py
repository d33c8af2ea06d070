"""Faults that a process meets from outside: a disk that fails, is full or read-only, and no descriptor left.

``failing_disk`` attaches strace to a process that runs and makes its calls fail, for chosen files or for all.
``no_descriptors`` lowers the limit of open files of a process to what it has open. Both end with their block, and the
process goes on as before.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.peers.power_cut import NOT_ALLOWED

WRITES: Final = "write,pwrite64,writev,pwritev"
SYNCS: Final = "fsync,fdatasync"

KINDS: Final = {
    "eio-write": ("EIO", WRITES),
    "eio-sync": ("EIO", SYNCS),
    "full": ("ENOSPC", WRITES),
    "read-only": ("EROFS", WRITES),
    "no-memory": ("ENOMEM", WRITES),
}
"""By the name of a fault: the error, and the calls that end with it."""

ATTACH_SECONDS: Final = 20.0
DETACH_SECONDS: Final = 20.0


class Fault:
    """One strace on one process: from ``begin`` to ``end`` the calls fail."""

    def __init__(self, pid: int, kind: str, paths: tuple[Path, ...]) -> None:
        self._pid = pid
        self._error, self._calls = KINDS[kind]
        self._paths = paths
        self._words: list[str] = []
        self._settled = threading.Event()
        self._strace: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Attach, and return when calls fail. Skips the test where no process may be traced."""
        program = shutil.which("strace")
        assert program is not None, "strace is not installed: apt-get install strace"
        places = [word for path in self._paths for word in ("-P", str(path))]
        command = [program, "-f", "-p", str(self._pid), "-o", os.devnull, *places]
        command += ["-e", f"trace={self._calls}", "-e", f"inject={self._calls}:error={self._error}"]
        self._strace = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._listen, args=(self._strace,), daemon=True).start()
        attached = self._settled.wait(ATTACH_SECONDS)
        words = "".join(self._words)
        if NOT_ALLOWED.search(words):
            self.end()
            pytest.skip(f"no process can be traced here: {words.strip()}")
        assert attached, words
        assert " attached" in words, words

    def _listen(self, strace: subprocess.Popen[str]) -> None:
        """Read what strace says for as long as it runs: it tells of each new thread, and a full pipe would stop it."""
        assert strace.stderr is not None
        with strace.stderr:
            for line in strace.stderr:
                if not self._settled.is_set():
                    self._words.append(line)
                if " attached" in line:
                    self._settled.set()
        self._settled.set()

    def end(self) -> None:
        """Detach, and return when the process is alone again."""
        strace, self._strace = self._strace, None
        if strace is None:
            return
        with contextlib.suppress(ProcessLookupError):
            strace.send_signal(signal.SIGINT)
        try:
            strace.wait(DETACH_SECONDS)
        finally:
            if strace.poll() is None:
                strace.kill()
                strace.wait()


@contextlib.contextmanager
def failing_disk(pid: int, kind: str, *paths: Path) -> Iterator[Fault]:
    """Make a process fail at these files, or at every file where none is named.

    Args:
        pid: The process. Threads and children that it starts meanwhile fail as well.
        kind: A name in ``KINDS``.
        paths: Files that exist and that the process has open; a file that is renamed away is no longer one of them.
    """
    fault = Fault(pid, kind, paths)
    fault.begin()
    try:
        yield fault
    finally:
        fault.end()


@contextlib.contextmanager
def no_descriptors(pid: int, left: int = 0) -> Iterator[int]:
    """Let a process open so many files more, and no others; the limit that it has meanwhile."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    listed = list(Path(f"/proc/{pid}/fd").iterdir())
    # Of this process the listing itself had one open, which is gone now.
    taken = {int(entry.name) for entry in listed if entry.is_symlink()}
    # The lowest free number is given out first, and the limit is one more than the highest that may be.
    limit = next(number for number, free in enumerate(_free_below(taken)) if free == left and number not in taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield limit
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def _free_below(taken: set[int]) -> Iterator[int]:
    """For each number from 0: how many free ones are below it."""
    free = 0
    for number in itertools.count():
        yield free
        free += number not in taken


def store_files(state: Path) -> tuple[Path, ...]:
    """The files to which a station's store writes: a log that is not there yet is left out."""
    return tuple(path for path in (state / "station.sqlite", state / "station.sqlite-wal") if path.exists())
