"""One life of an engine, seen from its station: its processes, what it writes, what it says, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from gateway.engines.running import Given
from gateway.engines.warden import HEAD

GRACE_SECONDS: Final = 3
"""Between SIGTERM and SIGKILL."""

END_SECONDS: Final = GRACE_SECONDS + 4.0
LAST_WORDS_SECONDS: Final = 2.0
LINE_BYTES: Final = 4096
MARK: Final = "OUTSTATION_ENGINE"
"""A variable that all processes of one life of an engine have."""

READ_BYTES: Final = 65_536


class Said(Struct, frozen=True):
    """A line of the status pipe."""

    state: str = ""
    error: str = ""
    counts: dict[str, int] = {}
    status: int | None = None
    why: str = ""
    left: int = 0


_said = msgspec.json.Decoder(Said)


class Child:
    """Started once, ended once."""

    def __init__(self, on_line: Callable[[str], None], on_said: Callable[[Said], None]) -> None:
        self._on_line = on_line
        self._on_said = on_said
        self._process: Process | None = None
        self._last = Said()
        self._error = ""
        self._ending = False

    @property
    def pid(self) -> int | None:
        """Of the process above the engine."""
        return None if self._process is None else self._process.pid

    async def live(self, given: Given, processes: int, state_dir: Path, environment: Mapping[str, str]) -> str:
        """From its start to its end; how it ended, in words. Cancelled: it is ended, with all that it started."""
        mark = secrets.token_hex(16)
        # Before anything is begun: options that cannot be handed over leave nothing behind.
        frame = msgspec.msgpack.encode(given, enc_hook=str)
        lines, lines_end = os.pipe2(os.O_CLOEXEC)
        said, said_end = os.pipe2(os.O_CLOEXEC)
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway.engines.warden", given.name, str(state_dir), str(said_end)),
                stdin=PIPE,
                stdout=lines_end,
                stderr=STDOUT,
                pass_fds=[said_end],
                env={**environment, MARK: mark},
                start_new_session=True,
            )
        except BaseException:
            os.close(lines)
            os.close(said)
            raise
        finally:
            os.close(lines_end)
            os.close(said_end)
        assert process.stdin is not None
        process.stdin.write(HEAD.pack(len(frame), processes, GRACE_SECONDS) + frame)
        if self._ending:
            self.ask_to_end()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_lines(lines, lambda line: self._on_line(line.decode("utf-8", "replace")))),
                    group.create_task(_lines(said, self._said)),
                ]
                await process.wait()
                # What it wrote last is read; what it left behind, against all odds, may hold the pipe open.
                await asyncio.wait(tasks, timeout=LAST_WORDS_SECONDS)
                for task in tasks:
                    task.cancel()
        finally:
            await self._end(process)
            if self._last.status is None:
                # Who watched over it was killed, and could end nothing.
                await asyncio.to_thread(_sweep, mark)
        return self._how()

    def ask_to_end(self) -> None:
        """Let go of it: it has ``GRACE_SECONDS`` to end by itself."""
        self._ending = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _said(self, line: bytes) -> None:
        try:
            said = _said.decode(line)
        except msgspec.DecodeError:
            return
        if said.error:
            self._error = said.error
        if said.status is not None or said.why or said.left:
            self._last = said
        self._on_said(said)

    async def _end(self, process: Process) -> None:
        if process.returncode is not None:
            return
        self.ask_to_end()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _how(self) -> str:
        left = f"; {self._last.left} of its processes could not be ended" if self._last.left else ""
        if self._last.why or self._error:
            return f"{self._last.why or self._error}{left}"
        status = self._last.status
        if status is None:
            return f"it was ended{left}"
        if status < 0:
            return f"it was ended by signal {-status} ({signal.Signals(-status).name}){left}"
        return (f"it ended with exit status {status}" if status else "its start() returned") + left


async def _lines(descriptor: int, take: Callable[[bytes], None]) -> None:
    """Every line of a pipe until its end, each cut at ``LINE_BYTES``."""
    reader = asyncio.StreamReader(limit=READ_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        rest = b""
        while piece := await reader.read(READ_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                take(line[:LINE_BYTES])
            rest = rest[:LINE_BYTES]
        if rest:
            take(rest)
    finally:
        transport.close()


def _sweep(mark: str) -> None:
    """End every process that has this mark in its environment (proc(5))."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
