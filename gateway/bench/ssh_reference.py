"""The reference of ``bench ssh``: bare asyncssh.

It imports nothing but Python's own library and ``asyncssh`` and is run as a plain script. It logs in with the same key
and by the same algorithms as the product, holds the host key against the one that is pinned, runs the command, and
keeps the connections. Nothing is written to a disk, nobody else is told, and what it keeps of a device is its
connection alone.

Lines of JSON on standard input ask, and lines of JSON on standard output answer.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import time
from typing import Any, Final

import asyncssh

AT_ONCE: Final = 64
"""As many as the product logs in to at once, unless it is told otherwise."""

LINE_BYTES: Final = 2**24
"""A line with every place is long."""

ALGORITHMS: Final[dict[str, Any]] = {
    "kex_algs": ["curve25519-sha256"],
    "encryption_algs": ["aes128-gcm@openssh.com"],
    "server_host_key_algs": ["ssh-ed25519"],
    "compression_algs": ["none"],
}

Answer = dict[str, Any]


class Reference:
    """Its connections, one for each place."""

    def __init__(self, *, places: list[tuple[str, int]], user: str, key: str, host_key: str) -> None:
        self._places = places
        self._connections: list[asyncssh.SSHClientConnection | None] = [None] * len(places)
        self._options: dict[str, Any] = {
            **ALGORITHMS,
            "config": None,
            "username": user,
            "client_keys": [asyncssh.read_private_key(key)],
            "known_hosts": ([asyncssh.import_public_key(host_key)], [], []),
            "agent_path": None,
            "x509_trusted_certs": None,
            "x509_trusted_cert_paths": [],
            "gss_host": None,
        }

    async def run(self, command: str, expected: str) -> Answer:
        """The command on each, on its connection; where there is none it is made."""
        marks: list[float] = []
        right = 0
        places = iter(range(len(self._places)))

        async def work() -> None:
            nonlocal right
            for place in places:
                connection = self._connections[place]
                if connection is None:
                    host, port = self._places[place]
                    connection = self._connections[place] = await asyncssh.connect(host, port, **self._options)
                ended = await connection.run(command)
                right += ended.exit_status == 0 and ended.stdout == expected
                marks.append(time.perf_counter() - begun)

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(AT_ONCE, len(self._places))):
                workers.create_task(work())
        return {"ok": right, "seconds": marks[-1], "first": marks[0], "last": marks[-1]}

    async def close(self) -> Answer:
        """Close every connection."""
        for place, connection in enumerate(self._connections):
            if connection is not None:
                connection.close()
                await connection.wait_closed()
                self._connections[place] = None
        return {}


async def answer_all() -> None:
    """Answer until the input ends. It opens its places first."""
    lines = asyncio.StreamReader(LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    reference: Reference | None = None
    while line := await lines.readline():
        asked = json.loads(line)
        try:
            match asked.pop("do"):
                case "open":
                    reference, answer = Reference(**asked), {}
                case "run" if reference is not None:
                    answer = await reference.run(**asked)
                case "close" if reference is not None:
                    answer = await reference.close()
                case other:
                    answer = {"error": f"{other} is nothing it does now"}
        except* (asyncssh.Error, OSError) as errors:
            answer = {"error": str(errors.exceptions[0])}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def main() -> int:
    """The program; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(answer_all())
    return 0


if __name__ == "__main__":
    sys.exit(main())
