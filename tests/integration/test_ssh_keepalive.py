"""What counts as an answer to a keepalive while an SSH device runs a command."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh.packet import String, UInt32

from device_agent.host import Completed, HostLost
from gateway.downlinks.ssh_line import KEEPALIVES
from tests.integration.test_ssh_line import Road
from tests.peers.ssh_played import played_device, shell
from tests.peers.waiting import until

IGNORE = 2
UNIMPLEMENTED = 3
GLOBAL_REQUEST = 80
REQUEST_FAILURE = 82
SEVERAL = 3 * KEEPALIVES

Answer = Callable[[Any, int], None]


def unimplemented(connection: Any, number: int) -> None:
    """As libssh 0.7 answers."""
    connection.send_packet(UNIMPLEMENTED, UInt32(number))


def unimplemented_off_by_one(connection: Any, number: int) -> None:
    """As TinySSH before 20260906 answers."""
    connection.send_packet(UNIMPLEMENTED, UInt32(number + 1))


def unimplemented_for_another(connection: Any, number: int) -> None:
    """The server knows keepalives, and there was a packet that it does not know."""
    connection.send_packet(UNIMPLEMENTED, UInt32(number - 1))
    connection.send_packet(REQUEST_FAILURE)


def another_packet(connection: Any, _number: int) -> None:
    """The server answers no keepalive, and says other things."""
    connection.send_packet(IGNORE, String(b""))


def silence(_connection: Any, _number: int) -> None:
    """Nothing at all."""


class Camera:
    """A device that answers keepalives in a chosen way."""

    def __init__(self, answer: Answer) -> None:
        self.keepalives = 0
        self._answer = answer

    async def run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run a command."""
        connection: Any = process.channel.get_connection()
        process_packet = connection.process_packet

        def answering(kind: int, number: int, packet: Any) -> Any:
            if kind != GLOBAL_REQUEST:
                return process_packet(kind, number, packet)
            self.keepalives += 1
            self._answer(connection, number)
            return True

        connection.process_packet = answering
        await shell(process)


@asynccontextmanager
async def command_until(file: Path, camera: Camera) -> AsyncIterator[asyncio.Task[Completed]]:
    """A command that ends when this file is there."""

    async def nothing(_name: str, _key: str) -> None:
        return

    async with played_device(camera.run) as device:
        road = Road(nothing)
        road.ways = dataclasses.replace(road.ways, keepalive_seconds=0.03)
        script = f"until [ -e {file} ]; do sleep 0.02; done; echo done"
        async with road.line("cam-1", device).lend() as host, asyncio.TaskGroup() as group:
            yield group.create_task(host.run(["/bin/sh", "-c", script]))
        road.pool.close_all()


@pytest.mark.parametrize("answer", [unimplemented, unimplemented_off_by_one, unimplemented_for_another, another_packet])
async def test_any_packet_that_follows_a_keepalive_keeps_the_command(tmp_path: Path, answer: Answer) -> None:
    camera = Camera(answer)
    async with command_until(tmp_path / "go", camera) as command:
        await until(lambda: camera.keepalives > SEVERAL or command.done(), what="several keepalives")
        (tmp_path / "go").touch()
    assert command.result().stdout == b"done\n"


async def test_a_device_that_sends_nothing_after_keepalives_is_lost(tmp_path: Path) -> None:
    camera = Camera(silence)
    with pytest.raises(ExceptionGroup) as raised:
        async with command_until(tmp_path / "go", camera) as command:
            await asyncio.wait([command])
    (lost,) = raised.value.exceptions
    assert isinstance(lost, HostLost)
    assert "not responding to keepalive" in lost.what
    assert camera.keepalives >= KEEPALIVES
