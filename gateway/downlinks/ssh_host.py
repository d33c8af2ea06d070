"""A machine behind an SSH connection, as a Host: whatever has a POSIX shell, down to BusyBox alone."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from copy import copy
from typing import Any, Final

import asyncssh

from device_agent.facts import collect
from device_agent.host import HOST_READ_BYTES, SHELL, Completed, HostLost, Reader, Stat, Writer
from device_agent.local_files import BESIDE, BESIDE_NAME_BYTES, LINKS_FOLLOWED
from gateway.downlinks import ssh_scripts
from gateway.downlinks.ssh_command import CommandRecord, plain_path, run_there
from gateway.downlinks.ssh_errors import errno_of, refusal
from gateway.downlinks.ssh_marker import Marker
from gateway.downlinks.ssh_tunnel import WINDOW_BYTES, Tunnel

FILE_SECONDS: Final = 60.0
"""What an operation on a file may take."""

SLOWEST_BYTES_A_SECOND: Final = 16_384
"""A file gets so much more time as this line would need for it."""

SESSIONS: Final = 8
"""Commands at once over one connection; OpenSSH's server allows ten, and killing one takes another."""

DROPBEAR: Final = re.compile(r"dropbear_(\d{4})\.(\d+)")
FRAGILE: Final = ((2022, 82), (2024, 85))
"""These drop the connection when a session opens while the command of another ends; their issues 173 and 321."""

LIST_BYTES: Final = 8_388_608
CONNECT_SECONDS: Final = 30.0


class SshHost:
    """Implements ``Host`` over a connection that somebody else opens, watches and closes.

    Commands wait for one another where the server cannot have several, so a connection is watched with keepalive
    messages and not with commands.
    """

    def __init__(self, connection: asyncssh.SSHClientConnection, grains: dict[str, Any]) -> None:
        self._connection = connection
        self._grains = grains
        self._sessions = asyncio.Semaphore(_sessions_at_once(connection))
        self._marker: Marker | None = None
        self.record = CommandRecord()

    def marked(self, marker: Marker) -> SshHost:
        """The same machine for one job, whose first command makes this marker."""
        host = copy(self)
        host._marker = marker  # noqa: SLF001 - of the same class
        return host

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
        """Run a command there; see ``ssh_command.py``. Raises ``AlreadyBegun`` where the job has a marker there."""
        marker = self._marker
        async with nullcontext() if marker is None or marker.settled else marker.turn, self._sessions:
            return await run_there(
                self._connection,
                argv,
                shell=shell,
                stdin=stdin,
                cwd=cwd,
                env=env,
                timeout=timeout,
                output_limit=output_limit,
                record=self.record,
                marker=None if marker is None or marker.settled else marker,
            )

    async def read(self, path: str, *, offset: int = 0, limit: int = HOST_READ_BYTES) -> bytes:
        return await self._file(ssh_scripts.READ, path, str(offset), str(limit), limit=limit)

    async def write(
        self, path: str, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None
    ) -> None:
        target, found = await self._followed(path)
        uid, gid = owner or (-1, -1)
        if found is not None:
            mode = found.mode if mode is None else mode
            uid, gid = (found.uid if uid == -1 else uid), (found.gid if gid == -1 else gid)
        folder, start = _beside(target)
        await self._file(
            ssh_scripts.WRITE,
            path,
            start + secrets.token_hex(4),
            plain_path(target),
            str(len(data)),
            "" if mode is None else f"{mode:04o}",
            _owner(uid, gid),
            start,
            start + secrets.token_hex(4),
            stdin=data,
            first=folder,
        )

    async def append(self, path: str, data: bytes, *, at: int) -> None:
        await self._file(ssh_scripts.APPEND, path, str(at), str(at + len(data)), stdin=data)

    async def replace(self, path: str, target: str) -> None:
        found = await self.stat(target, follow=False)
        mode, owner = "", ""
        if found is not None and found.kind == "file":
            mode, owner = f"{found.mode:04o}", _owner(found.uid, found.gid)
        folder, start = _beside(target)
        empty = start + secrets.token_hex(4)
        await self._file(ssh_scripts.REPLACE, path, plain_path(target), mode, owner, folder, empty)

    async def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        try:
            said = await self._file(ssh_scripts.STAT, path, "-L" if follow else "")
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return ssh_scripts.stat_of(said)
        except (ValueError, LookupError):
            why = f"the device's answer is not what stat or ls prints: {said[:200]!r}"
            raise OSError(errno.EBADMSG, why, path) from None

    async def list(self, path: str) -> list[str]:
        said = await self._file(ssh_scripts.LIST, path, limit=LIST_BYTES)
        return sorted(name.decode(errors="surrogateescape") for name in said.split(b"\0")[:-1])

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        await self._file(ssh_scripts.REMOVE, path, "r" if recursive else "")

    def lock(self, path: str) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 - of the port
        return nullcontext()

    async def connect(self, port: int, *, address: str = "127.0.0.1") -> tuple[Reader, Writer]:
        if self._marker is not None and not self._marker.settled:
            await self.run(["true"], timeout=FILE_SECONDS)
        tunnel = Tunnel()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._connection.create_connection(lambda: tunnel, address, port, window=WINDOW_BYTES)
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"no connection in {CONNECT_SECONDS:g} seconds") from None
        except asyncssh.ChannelOpenError as error:
            raise self._unconnected(error, address, port) from error
        except asyncssh.Error as error:
            raise HostLost(f"the connection broke: {error}") from error
        return tunnel.reader, tunnel

    async def facts(self) -> dict[str, Any]:
        return await collect(self, str(self._grains.get("id", "")))

    async def _followed(self, path: str) -> tuple[str, Stat | None]:
        """Where a write to this path goes, and what is there."""
        target = path
        for _ in range(LINKS_FOLLOWED):
            found = await self.stat(target, follow=False)
            if found is None or found.kind != "link":
                return target, found
            target = os.path.join(os.path.dirname(target), found.target)  # noqa: PTH118, PTH120 - see local_files.py
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    async def _file(
        self,
        script: str,
        path: str,
        *arguments: str,
        stdin: bytes | None = None,
        limit: int = 65536,
        first: str | None = None,
    ) -> bytes:
        """What a script prints that is given the path, or ``first`` in its place. Raises ``OSError`` about the path."""
        if not path:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        seconds = FILE_SECONDS + max(limit, len(stdin or b"")) / SLOWEST_BYTES_A_SECOND
        completed = await self.run(
            [SHELL, "-c", script.strip(), "sh", plain_path(path) if first is None else first, *arguments],
            stdin=stdin,
            env={"LC_ALL": "C"},
            timeout=seconds,
            output_limit=limit,
        )
        if completed.timed_out:
            raise TimeoutError(errno.ETIMEDOUT, f"it was not over after {seconds:.0f} seconds", path)
        if completed.returncode:
            raise refusal(completed.stderr, path)
        if completed.truncated:
            raise OSError(errno.EFBIG, f"the device's answer has more than {limit} bytes", path)
        return completed.stdout

    def _unconnected(self, error: asyncssh.ChannelOpenError, address: str, port: int) -> Exception:
        if self._connection.is_closed():
            return HostLost(f"the connection broke: {error}", started=False)
        if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
            return PermissionError(errno.EACCES, "the device's SSH server forwards no connections")
        number = errno_of(error.reason.encode()) or errno.ECONNREFUSED
        return OSError(number, f"{os.strerror(number)}: {address} port {port}")


def _sessions_at_once(connection: asyncssh.SSHClientConnection) -> int:
    found = DROPBEAR.search(str(connection.get_extra_info("server_version", "")))
    fragile = found is not None and FRAGILE[0] <= (int(found[1]), int(found[2])) <= FRAGILE[1]
    return 1 if fragile else SESSIONS


def _beside(target: str) -> tuple[str, str]:
    """The folder of a file, and what the names of the files start with that are made beside it to write it."""
    folder, name = os.path.split(plain_path(target))
    folder = folder.rstrip("/") + "/"
    return folder, f"{folder}.{os.fsdecode(os.fsencode(name)[:BESIDE_NAME_BYTES])}{BESIDE}"


def _owner(uid: int, gid: int) -> str:
    """As chown(1) takes it; empty when neither is given."""
    return (str(uid) if uid != -1 else "") + (f":{gid}" if gid != -1 else "")
