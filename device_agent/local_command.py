"""A command on this machine: started, fed, heard to its end, and killed with all it started where it does not end."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from device_agent.disk_threads import DISK_THREADS, DiskThreads
from device_agent.host import SHELL, Completed

# With vfork(2) all threads wait until the child has entered its folder and found its program, which a dead network disk
# can hold up for ever. The documentation of ``subprocess`` names this switch.
setattr(subprocess, "_USE_VFORK", False)  # noqa: B010 - its type says that it never changes

REAP_SECONDS = 5.0
"""How long a killed process is waited for; only one stuck inside the kernel takes this long."""

POLL_SECONDS = 0.05
"""How often a process is looked at on a kernel that cannot tell of its end."""

PIPE_SECONDS = 1.0
"""How long output is still awaited after the end of a command whose daemon kept the pipe."""


async def run_here(
    argv: Sequence[str] | str,
    *,
    shell: bool,
    stdin: bytes | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    output_limit: int,
    threads: DiskThreads = DISK_THREADS,
) -> Completed:
    """Run a command here; see ``Host.run``.

    The command leads a session of its own. What it leaves running there stays if it has let go of the command's
    output, as a daemon does; what still holds the output a second after the command's end is killed.

    It starts in a thread: the folder and the program may be on a disk that does not answer.
    """
    words = words_of(argv, shell=shell)

    # Made before it starts, so that its number is known while it hangs.
    process: subprocess.Popen[bytes] = subprocess.Popen.__new__(subprocess.Popen)

    def start() -> None:
        process.__init__(  # type: ignore[misc] # it is called once, in the thread
            words,
            bufsize=0,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=None if env is None else {**os.environ, **env},
            start_new_session=True,
        )

    begun = asyncio.get_running_loop().time()
    bound = asyncio.timeout(timeout)
    try:
        async with bound:
            where = f"{cwd}/" if cwd else words[0]
            await threads.call_and_own(where, start, lambda _: _end_unwatched(process), lambda: _kill(process))
    except TimeoutError:
        if not bound.expired():
            raise  # The disk has said so (ETIMEDOUT).
        return Completed(-signal.SIGKILL, b"", b"", timed_out=True)
    command = _Command(process, stdin or b"", output_limit)
    timed_out = False
    try:
        command.watch()
        async with asyncio.timeout_at(None if timeout is None else begun + timeout):
            await command.exited.wait()
    except TimeoutError:
        timed_out = True
    finally:
        await command.end()
    return Completed(
        returncode=-signal.SIGKILL if process.returncode is None else process.returncode,
        stdout=bytes(command.kept["stdout"]),
        stderr=bytes(command.kept["stderr"]),
        truncated=command.discarded,
        timed_out=timed_out,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that may not have started its program, nor its session, nor itself."""
    pid: int | None = getattr(process, "pid", None)
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            if pid is not None:
                end(pid, signal.SIGKILL)


def _end_unwatched(process: subprocess.Popen[bytes]) -> None:
    """End a process whose caller was cancelled while it started."""
    _kill(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP_SECONDS)


class _Command:
    """A process under way: feeds it, keeps the first bytes of each stream and counts the rest, and reaps it.

    From the moment its caller has the process until it is watched nothing is awaited. With ``loop.subprocess_exec``
    there is a moment in which a cancelled caller leaves the process's children behind, and on Python 3.11 may never
    return.
    """

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, limit: int) -> None:
        self._process = process
        self._input = memoryview(stdin)
        self._limit = limit
        self._pidfd: int | None = None
        self._left = False
        self._open: dict[str, IO[bytes]] = {}
        self.kept = {"stdout": bytearray(), "stderr": bytearray()}
        self.discarded = 0
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    def watch(self) -> None:
        """Have the loop call when there is output, room for input, or the end."""
        loop = asyncio.get_running_loop()
        pipes = {"stdin": self._process.stdin, "stdout": self._process.stdout, "stderr": self._process.stderr}
        self._open = {name: pipe for name, pipe in pipes.items() if pipe is not None}
        for name, pipe in self._open.items():
            os.set_blocking(pipe.fileno(), False)
            if name == "stdin":
                loop.add_writer(pipe.fileno(), self._write, pipe)
            else:
                loop.add_reader(pipe.fileno(), self._read, name, pipe)
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            self._ask_again()  # Linux before 5.3 has no such thing.
        else:
            loop.add_reader(self._pidfd, self._ended)

    async def end(self) -> None:
        """Wait for the last output; kill what does not end by itself or keeps the output open; reap."""
        finished = False
        try:
            if not self.exited.is_set():
                self._kill_group()
            async with asyncio.timeout(REAP_SECONDS):
                await self.exited.wait()
            async with asyncio.timeout(PIPE_SECONDS):
                await self.drained.wait()
            finished = True
        except TimeoutError:
            # Either it is stuck inside the kernel, or something holds the pipes; neither may hold us.
            pass
        finally:
            if not finished:
                self._kill_group()
            for name in list(self._open):
                self._close(name)
            self._left = True
            if self.exited.is_set():
                self._process.poll()

    def _ended(self) -> None:
        """The leader is dead. It is reaped last, so that until then its number can be nobody else's group."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
        self.exited.set()
        if self._left:
            self._process.poll()

    def _ask_again(self) -> None:
        if self._process.poll() is None:
            asyncio.get_running_loop().call_later(POLL_SECONDS, self._ask_again)
        else:
            self._ended()

    def _kill_group(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # Nobody is left, or only processes that changed their user, which only the administrator could end.
            return

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        try:
            data = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return
        if not data:
            self._close(name)
            return
        kept = self.kept[name]
        room = max(0, self._limit - len(kept))
        kept += data[:room]
        self.discarded += max(0, len(data) - room)

    def _write(self, pipe: IO[bytes]) -> None:
        try:
            self._input = self._input[os.write(pipe.fileno(), self._input[:65536]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = memoryview(b"")  # A command that does not read its input loses it.
        if not self._input:
            self._close("stdin")

    def _close(self, name: str) -> None:
        pipe = self._open.pop(name)
        loop = asyncio.get_running_loop()
        (loop.remove_writer if name == "stdin" else loop.remove_reader)(pipe.fileno())
        pipe.close()
        if not self._open.keys() & self.kept.keys():
            self.drained.set()


def words_of(argv: Sequence[str] | str, *, shell: bool) -> list[str]:
    """The words of a command; ``ValueError`` when there are none."""
    if shell:
        return [SHELL, "-c", argv if isinstance(argv, str) else shlex.join(argv)]
    words = shlex.split(argv) if isinstance(argv, str) else list(argv)
    if not words:
        raise ValueError("the command is empty")
    return words
