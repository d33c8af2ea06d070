"""SSH devices that the test plays in its own process: good ones, and ones that misbehave in a chosen way."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from tests.peers.waiting import until

PASSWORD = "made up for the tests"
Handle = Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]]
Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class PlayedDevice:
    """A server, what it lets in, and what it was asked."""

    key: asyncssh.SSHKey
    port: int = 0
    password: str = PASSWORD
    logins: int = 0
    connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    door: asyncio.Event = field(default_factory=asyncio.Event)
    """Whoever logs in waits while it is cleared."""
    home: Path = Path("/nonexistent")
    """The home of the login user."""
    login_shell: Sequence[str] = ("/bin/sh", "-c")
    """What runs the line of a command."""

    def __post_init__(self) -> None:
        self.door.set()

    @property
    def host_keys(self) -> tuple[str, ...]:
        """Its key, as OpenSSH writes it."""
        return (" ".join(self.key.export_public_key("openssh").decode().split()[:2]),)

    def hang_up(self) -> None:
        """End every connection without a goodbye."""
        for connection in self.connections:
            connection.abort()
        self.connections.clear()


class _Door(asyncssh.SSHServer):
    def __init__(self, device: PlayedDevice) -> None:
        self._device = device

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._device.connections.append(conn)
        conn.set_extra_info(device=self._device)

    def password_auth_supported(self) -> bool:
        return True

    async def validate_password(self, username: str, password: str) -> bool:
        self._device.logins += 1
        await self._device.door.wait()
        return password == self._device.password

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True


async def shell(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """What a device does with a command: run it."""
    device: PlayedDevice = process.get_extra_info("device")
    run = await asyncio.create_subprocess_exec(
        *device.login_shell,
        process.command or "",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "HOME": str(device.home)},
    )
    assert run.stdin is not None
    assert run.stdout is not None
    assert run.stderr is not None

    async def feed(sink: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncssh.Error):
            while data := await process.stdin.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def pump(source: asyncio.StreamReader, sink: asyncssh.SSHWriter[bytes]) -> None:
        with suppress(OSError, asyncssh.Error):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()

    try:
        async with asyncio.TaskGroup() as pumps:
            feeding = pumps.create_task(feed(run.stdin))
            outward = [pumps.create_task(pump(run.stdout, process.stdout))]
            outward.append(pumps.create_task(pump(run.stderr, process.stderr)))
            await process_ended(run, process)
            await asyncio.wait(outward, timeout=1.0)
            for task in (feeding, *outward):
                task.cancel()
        process.exit(run.returncode or 0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        await run.wait()
        run._transport.close()  # type: ignore[attr-defined] # the only way to close the pipes that nobody read to their end


async def process_ended(run: asyncio.subprocess.Process, asked: asyncssh.SSHServerProcess[bytes]) -> None:
    """Wait for the command, or for the connection that it belongs to."""
    async with asyncio.TaskGroup() as both:
        ways = {both.create_task(_wait(run)), both.create_task(asked.wait_closed())}
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()


async def _wait(run: asyncio.subprocess.Process) -> None:
    await run.wait()


def new_key() -> asyncssh.SSHKey:
    """A host key."""
    return asyncssh.generate_private_key("ssh-ed25519")


@asynccontextmanager
async def played_device(
    handle: Handle = shell, *, key: asyncssh.SSHKey | None = None, port: int = 0, home: Path | None = None
) -> AsyncIterator[PlayedDevice]:
    """A device that takes a password, for as long as the block lasts, with a home that may be there before."""
    with tempfile.TemporaryDirectory(prefix="outstation-home-") as fresh:
        async with _played(handle, PlayedDevice(key or new_key(), home=home or Path(fresh)), port) as device:
            yield device


@asynccontextmanager
async def _played(handle: Handle, device: PlayedDevice, port: int) -> AsyncIterator[PlayedDevice]:

    async def process(asked: asyncssh.SSHServerProcess[bytes]) -> None:
        device.commands.append(asked.command or "")
        await handle(asked)

    server = await asyncssh.create_server(
        lambda: _Door(device),
        "127.0.0.1",
        port,
        server_host_keys=[device.key],
        process_factory=process,
        encoding=None,
    )
    device.port = server.sockets[0].getsockname()[1]
    try:
        yield device
    finally:
        server.close()
        device.hang_up()
        await server.wait_closed()


@asynccontextmanager
async def something_else(speak: Speak) -> AsyncIterator[int]:
    """A port where something listens that speaks as the test says."""
    speakers: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        speakers.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await speak(reader, writer)
        finally:
            speakers.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for speaker in list(speakers):
            speaker.cancel()
        await until(lambda: not speakers, what="the end of what listens")
