"""The process above an engine: it ends with its station, and takes everything that the engine started along.

Run as ``python -m gateway.engines.warden NAME STATE_DIR DESCRIPTOR``; on the descriptor it and the engine say, in JSON
lines, how it goes. Standard input has a head, the engine as a frame, and then
nothing until the station ends or wants this to end, kill -9 included: its end is the word for both. What the engine
starts is adopted here (PR_SET_CHILD_SUBREAPER, prctl(2)) whatever it does to get away, so it can be found and ended.
Only what is needed for that is imported here; the engine is a fork of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HEAD: Final = struct.Struct(">IId")
"""Bytes of the frame, most processes, seconds between SIGTERM and SIGKILL."""

LOOK_MILLISECONDS: Final = 1000
KILL_SECONDS: Final = 3.0
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36


def main(status: int) -> int:
    """Watch an engine from its start to its end."""
    head = _exactly(HEAD.size)
    length, processes, grace = HEAD.unpack(head)
    frame = _exactly(length)
    _control(PR_SET_CHILD_SUBREAPER, 1)
    own = os.getpid()
    engine = os.fork()
    if engine == 0:
        return _engine(own, frame, status)
    return Warden(engine, processes, grace).watch(status)


def _engine(warden: int, frame: bytes, status: int) -> int:
    # Where even the warden is killed, the engine goes with it.
    _control(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != warden:
        return 1
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    from gateway.engines.running import run  # noqa: PLC0415 - the warden itself stays small

    return run(frame, status)


class Warden:
    """Watches one engine."""

    def __init__(self, engine: int, processes: int, grace: float) -> None:
        self._engine = engine
        self._processes = processes
        self._grace = grace
        self._status: int | None = None

    def watch(self, status: int) -> int:
        """Until it has ended and nothing of it is left; says how, and returns 0."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        with contextlib.suppress(ProcessLookupError):
            poll.register(os.pidfd_open(self._engine), select.POLLIN)
        asked: float | None = None
        why = ""
        while self._status is None:
            ready = dict(poll.poll(LOOK_MILLISECONDS))
            if 0 in ready and not os.read(0, 1):
                poll.unregister(0)
                asked = time.monotonic()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._engine, signal.SIGTERM)
            self._reap()
            if asked is not None and time.monotonic() - asked > self._grace:
                break
            if (count := len(list(descendants(os.getpid())))) > self._processes:
                why = f"it had {count} processes, at most {self._processes}: engine_limits.processes"
                break
        left = self._clear()
        said = {"status": self._status, "why": why, "left": left}
        with contextlib.suppress(OSError):
            os.write(status, json.dumps(said).encode() + b"\n")
        return 0

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._engine:
                    self._status = os.waitstatus_to_exitcode(status)

    def _clear(self) -> int:
        """End all that is left; how many could not be ended."""
        deadline = time.monotonic() + KILL_SECONDS
        while found := list(descendants(os.getpid())):
            if time.monotonic() > deadline:
                return len(found)
            # Those that are stopped start no others while the rest is looked for.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in found:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            self._reap()
            time.sleep(0.005)
        return 0


def descendants(pid: int) -> Iterator[int]:
    """The processes below this one, as proc(5) lists them."""
    for task in _listed(Path(f"/proc/{pid}/task")):
        with contextlib.suppress(OSError, ValueError):
            for child in map(int, (task / "children").read_text(encoding="ascii").split()):
                yield child
                yield from descendants(child)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _exactly(size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = os.read(0, min(size - len(found), 1 << 16))
        if not piece:
            sys.exit(0)
        found += piece
    return found


def _control(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[3])))
