"""An SSH device that floods its gateway is cut off and let wait, whenever it does so and with whatever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import asyncssh
import pytest
from asyncssh.packet import String

from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh_fence import Bucket
from tests.peers.clock import HandClock
from tests.peers.ssh_played import PASSWORD, PlayedDevice, played_device, shell
from tests.peers.ssh_site import SshSite, ssh_site
from tests.peers.waiting import until

LOGIN = Secret(password=PASSWORD)
IGNORE = 2
WINDOW_ADJUST = 93

Say = Callable[[asyncssh.SSHServerConnection], None]


def debug(connection: asyncssh.SSHServerConnection) -> None:
    connection.send_debug("look at me")


def large(connection: asyncssh.SSHServerConnection) -> None:
    connection.send_packet(IGNORE, String(bytes(30_000)))


def unknown(connection: asyncssh.SSHServerConnection) -> None:
    connection.send_packet(192, b"what is that")


def key_exchange(connection: asyncssh.SSHServerConnection) -> None:
    if not connection._kexinit_sent and connection._kex is None:
        connection._send_kexinit()
        connection._kexinit_sent = True


async def floods(camera: PlayedDevice, say: Say) -> None:
    """Say it over and over, until the connection is gone."""
    (connection,) = camera.connections
    with suppress(OSError, asyncssh.Error):
        while not connection.is_closed():
            say(connection)
            await asyncio.sleep(0)


async def cut_off(site: SshSite) -> None:
    await until(lambda: str(site.ssh.view("cam-1")).count("flooding"), what=f"{site.ssh.view('cam-1')}")


@pytest.mark.parametrize("say", [debug, large, unknown, key_exchange])
async def test_one_that_floods_while_nobody_asks_it_anything_is_cut_off(tmp_path: Path, say: Say) -> None:
    async with played_device() as camera, played_device() as other, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.add("cam-2", other.port, other.host_keys, LOGIN)
        await site.here("cam-1", "cam-2")
        await floods(camera, say)
        await cut_off(site)
        assert camera.logins == 1
        assert (await site.run("cmd.run", "cam-2", arg=["echo here"]))["cam-2"].value == "here"


async def test_one_that_floods_with_key_exchanges_under_a_command_is_cut_off(tmp_path: Path) -> None:
    async def hangs(process: asyncssh.SSHServerProcess[bytes]) -> None:
        await (process.wait_closed() if "sleep 600" in (process.command or "") else shell(process))

    async with played_device(hangs) as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        jid = await site.start("cmd.run", "cam-1", arg=["sleep 600"])
        await until(lambda: any("sleep 600" in command for command in camera.commands), what="the command")
        await floods(camera, key_exchange)
        assert (await site.outcomes(jid))["cam-1"].outcome == "unknown"
        await cut_off(site)


async def test_one_that_says_a_little_stays(tmp_path: Path) -> None:
    async with played_device() as camera, ssh_site(tmp_path) as site:
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.here("cam-1")
        (connection,) = camera.connections
        for _ in range(50):
            debug(connection)
        key_exchange(connection)
        await until(lambda: not connection._kexinit_sent and connection._kex is None, what="the key exchange")
        assert (await site.run("cmd.run", "cam-1", arg=["head -c 3000000 /dev/zero | tr '\\0' x"]))[
            "cam-1"
        ].outcome == "ok"
        assert camera.logins == 1


def test_a_bucket_fills_with_time_and_no_further_than_its_brim() -> None:
    clock = HandClock()
    bucket = Bucket(10, 1, clock.monotonic())
    assert all(bucket.take(1, clock.monotonic()) for _ in range(10))
    assert not bucket.take(1, clock.monotonic())
    clock.move(3)
    assert bucket.take(2, clock.monotonic())
    clock.move(1000)
    assert bucket.take(10, clock.monotonic())
    assert not bucket.take(1, clock.monotonic())
