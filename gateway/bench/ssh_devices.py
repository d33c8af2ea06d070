"""The devices of ``bench ssh``: one process of asyncssh's own server, with a port for each device.

It imports nothing but Python's own library and ``asyncssh`` and is run as a plain script. The first time it hears a
command line a shell runs it; from then on every device says what that shell said, and how it ended. So the CPU of a
device's own shell, which elsewhere is not on this machine, is in no figure. One key is every device's host key.

A line of JSON on standard input asks, one on standard output answers, and the end of its input ends it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from typing import Any, Final

import asyncssh

HOST: Final = "127.0.0.1"
SHELL_SECONDS: Final = 30.0


class Said:
    """What a shell printed for a command line, and how it ended."""

    def __init__(self, command: str) -> None:
        run = subprocess.run(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SHELL_SECONDS,
            check=False,
            start_new_session=True,
        )
        self.stdout, self.stderr, self.status = run.stdout, run.stderr, run.returncode


class Session(asyncssh.SSHServerSession[bytes]):
    """One command."""

    known: Final[dict[str, Said]] = {}

    def __init__(self) -> None:
        self._channel: asyncssh.SSHServerChannel[bytes]
        self._command = ""

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """The session is open."""
        self._channel = chan

    def exec_requested(self, command: str) -> bool:
        """A command is all that there is."""
        self._command = command
        return True

    def session_started(self) -> None:
        """Answer."""
        said = self.known.get(self._command)
        if said is None:
            said = self.known[self._command] = Said(self._command)
        if said.stdout:
            self._channel.write(said.stdout)
        if said.stderr:
            self._channel.write_stderr(said.stderr)
        self._channel.exit(said.status)


class Door(asyncssh.SSHServer):
    """Who comes in is a question of keys, which asyncssh asks."""

    def session_requested(self) -> Session:
        """Another command."""
        return Session()


async def serve(asked: dict[str, Any]) -> None:
    """Be so many devices until the input ends."""
    key = asyncssh.read_private_key(asked["host_key"])
    ports = []
    for _ in range(asked["count"]):
        server = await asyncssh.create_server(
            Door,
            HOST,
            0,
            server_host_keys=[key],
            authorized_client_keys=asked["client_key"],
            encoding=None,
            line_editor=False,
        )
        ports.append(server.sockets[0].getsockname()[1])
    sys.stdout.write(json.dumps({"ports": ports}) + "\n")
    sys.stdout.flush()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await lines.read()


def main() -> int:
    """The program; returns the exit status."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(json.loads(sys.stdin.readline())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
