"""Host: all that a function may touch, so that the same function works here and through any other way to a machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

from msgspec import Struct

SHELL = "/bin/sh"
REAP_SECONDS = 5.0
"""How long a killed process is waited for; only one stuck inside the kernel takes this long."""

PIPE_SECONDS = 1.0
"""How long output is still awaited after the end of a command whose daemon kept the pipe."""


class Completed(Struct, frozen=True):
    """A command that ended. ``truncated`` counts the bytes thrown away; a negative ``returncode`` is a signal."""

    returncode: int
    stdout: bytes
    stderr: bytes
    truncated: int = 0
    timed_out: bool = False


class Host(Protocol):
    """The machine a function works on."""

    @property
    def grains(self) -> dict[str, Any]:
        """The facts it reported."""

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        shell: bool = False,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        output_limit: int = 65536,
    ) -> Completed:
        """Run a command to its end and keep the first ``output_limit`` bytes of each of its two streams.

        With ``shell`` the command is one text for ``/bin/sh``; without, a text is split into words as a shell would.
        ``env`` is added to the environment. After ``timeout`` seconds, and when the caller is cancelled, the command
        and all it started are killed. Raises ``OSError`` when it cannot start and ``ValueError`` when it cannot be one.
        """


class LocalHost:
    """The machine this process runs on."""

    def __init__(self, grains: dict[str, Any]) -> None:
        self._grains = grains

    @property
    def grains(self) -> dict[str, Any]:
        """The facts given at construction."""
        return self._grains

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        shell: bool = False,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        output_limit: int = 65536,
    ) -> Completed:
        """Run a command here; see ``Host.run``.

        The command leads a session of its own. What it leaves running in that session ends with it; a daemon, which by
        definition makes its own session, stays.
        """
        words = _words(argv, shell=shell)
        timed_out = False
        transport: asyncio.SubprocessTransport | None = None
        capture = _Capture(output_limit)
        try:
            async with asyncio.timeout(timeout):
                transport, _ = await asyncio.get_running_loop().subprocess_exec(
                    lambda: capture,
                    *words,
                    stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
                    cwd=cwd,
                    env=None if env is None else {**os.environ, **env},
                    start_new_session=True,
                )
                _feed(transport, stdin)
                await capture.exited.wait()
        except TimeoutError:
            timed_out = True
        finally:
            if transport is not None:
                await _end(transport, capture)
        # A time limit that passed before the process was made leaves nothing to report of it.
        returncode = transport.get_returncode() if transport is not None else None
        return Completed(
            returncode=-signal.SIGKILL if returncode is None else returncode,
            stdout=bytes(capture.kept[1]),
            stderr=bytes(capture.kept[2]),
            truncated=capture.discarded,
            timed_out=timed_out,
        )


class _Capture(asyncio.SubprocessProtocol):
    """Keeps the first bytes of each stream and counts the rest, so that output cannot fill the memory."""

    STREAMS: ClassVar[tuple[int, int]] = (1, 2)

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open = set(self.STREAMS)
        self.kept = {stream: bytearray() for stream in self.STREAMS}
        self.discarded = 0
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.kept[fd]
        room = max(0, self._limit - len(kept))
        kept += data[:room]
        self.discarded += max(0, len(data) - room)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio passes it by position; a pipe's end is its end
        self._open.discard(fd)
        if not self._open:
            self.drained.set()

    def process_exited(self) -> None:
        self.exited.set()


def _words(argv: Sequence[str] | str, *, shell: bool) -> list[str]:
    if shell:
        return [SHELL, "-c", argv if isinstance(argv, str) else shlex.join(argv)]
    words = shlex.split(argv) if isinstance(argv, str) else list(argv)
    if not words:
        raise ValueError("the command is empty")
    return words


def _feed(transport: asyncio.SubprocessTransport, stdin: bytes | None) -> None:
    """Hand over all input and close the pipe behind it; a command that does not read it loses it, not us."""
    if stdin is not None and (pipe := cast("asyncio.WriteTransport | None", transport.get_pipe_transport(0))):
        pipe.write(stdin)
        pipe.close()


async def _end(transport: asyncio.SubprocessTransport, capture: _Capture) -> None:
    """Kill what is left of the session, wait for its leader, take the last output, close the pipes."""
    try:
        _kill_group(transport.get_pid())
        async with asyncio.timeout(REAP_SECONDS):
            await capture.exited.wait()
        async with asyncio.timeout(PIPE_SECONDS):
            await capture.drained.wait()
    except TimeoutError:
        # Either it is stuck inside the kernel, or a daemon of its own session holds the pipes; neither may hold us.
        pass
    finally:
        transport.close()


def _kill_group(leader: int) -> None:
    """SIGKILL to the group. While any member lives the number stays theirs, so it cannot hit a stranger's group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # Nobody is left, or only processes that changed their user, which only the administrator could end.
        return
