"""The way to one SSH device: what becomes of it when the device hangs up, or when somebody changes it meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asyncssh import SSHClientConnection

from device_agent.clock import Clock
from device_agent.host import HostLost
from gateway.devices.ssh_device import SshDevice, host_key_fingerprint
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh_facts import NotTold, ask_facts
from gateway.downlinks.ssh_host import SshHost
from gateway.downlinks.ssh_line import Line, Ways
from gateway.downlinks.ssh_login import Logins
from gateway.downlinks.ssh_pool import Pool
from gateway.downlinks.ssh_turns import Turns
from gateway.metrics import Metrics
from tests.peers.ssh_played import PASSWORD, PlayedDevice, played_device
from tests.peers.waiting import until


class Road:
    """Lines that share a pool, and what was heard of them."""

    def __init__(self, met: Callable[[str, str], Awaitable[object]], logins: Logins | None = None) -> None:
        clock = Clock()
        self.lost: list[str] = []
        self.lines: dict[str, Line] = {}
        self.pool = Pool(10, 60.0)
        self.ways = Ways(
            clock=clock,
            metrics=Metrics(clock),
            turns=Turns(10, clock),
            pool=self.pool,
            logins=logins or Logins(None),
            connect_seconds=20.0,
            keepalive_seconds=10.0,
            secret=lambda _name: Secret(password=PASSWORD),
            met=met,
            line_of=self.lines.get,
            host_over=_host_over,
            on_lost=self.lost.append,
            on_judged=lambda _name, _before: None,
            randomness=random.Random(1),
        )

    def line(self, name: str, camera: PlayedDevice, jump: str = "") -> Line:
        """A line to a device of which only the fingerprint is known."""
        prints = tuple(map(host_key_fingerprint, camera.host_keys))
        device = SshDevice(name, "root", "127.0.0.1", camera.port, fingerprints=prints, jump=jump)
        self.lines[name] = Line(device, self.ways)
        return self.lines[name]


def _host_over(connection: SSHClientConnection, grains: dict[str, Any]) -> SshHost:
    return SshHost(connection, grains)


async def _nothing(_name: str, _key: str) -> None:
    return


async def test_a_device_that_hangs_up_right_after_the_login_is_lost_and_nothing_breaks() -> None:
    async with played_device() as camera:

        async def met(name: str, _key: str) -> None:
            camera.hang_up()
            await until(lambda: road.lost == [name], what="its connection is gone")

        road = Road(met)
        line = road.line("cam-1", camera)
        with pytest.raises(HostLost, match="connection_lost: the device hung up after the login") as lost:
            async with line.lend():
                pytest.fail("there is nothing to work on")
        assert not lost.value.started
        assert (line.users, line.breaker.failures, len(road.pool)) == (0, 1, 0)


async def test_a_jump_host_is_let_go_when_what_is_behind_it_is_gone_before_its_login_is_known_of() -> None:
    class Late(Logins):
        async def login(self, device: SshDevice, *rest: Any, **named: Any) -> SSHClientConnection:
            connection = await super().login(device, *rest, **named)
            if device.jump:
                camera.hang_up()
                await connection.wait_closed()
            return connection

    async with played_device() as gate, played_device() as camera:
        road = Road(_nothing, Late(None))
        jump, line = road.line("gate", gate), road.line("cam-1", camera, jump="gate")
        for _ in range(2):
            with pytest.raises(HostLost, match="connection_lost: the device hung up after the login"):
                async with line.lend():
                    pytest.fail("there is nothing to work on")
            line.changed()
            assert (jump.users, line.users, line.connected, len(road.pool)) == (0, 0, False, 1)
        road.pool.close_all()


async def test_what_is_removed_while_it_is_connected_to_is_not_worked_on() -> None:
    async with played_device() as camera:
        let = asyncio.Event()

        async def met(_name: str, _key: str) -> None:
            line.retire(at_once=True)
            let.set()

        road = Road(met)
        line = road.line("cam-1", camera)
        with pytest.raises(HostLost, match="cam-1 was changed or removed") as lost:
            async with line.lend():
                pytest.fail("it was removed")
        assert let.is_set()
        assert not lost.value.started
        assert (line.users, line.breaker.failures, len(road.pool)) == (0, 0, 0)
        assert not camera.commands


async def test_grains_that_do_not_come_close_no_connection_that_a_job_works_over(tmp_path: Path) -> None:
    class Mute(SshHost):
        async def facts(self) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

    async with played_device() as camera:
        road = Road(_nothing)
        line = road.line("cam-1", camera)
        script = f"touch {tmp_path}/begun; until [ -e {tmp_path}/go ]; do sleep 0.02; done; echo done"
        async with line.lend() as host, asyncio.TaskGroup() as group:
            job = group.create_task(host.run(["/bin/sh", "-c", script]))
            await until((tmp_path / "begun").exists, what="the job is at work")
            async with line.lend():
                mute = Mute(await line.enter(), {})
                line.leave()
                with pytest.raises(NotTold, match="timed_out: it did not tell its grains within"):
                    await ask_facts(line, mute, 0.01, road.ways.metrics)
            (tmp_path / "go").touch()
        assert job.result().stdout == b"done\n"
        assert (line.connected, line.breaker.failures, camera.logins) == (True, 0, 1)
        async with line.lend():
            with pytest.raises(HostLost, match="timed_out: it did not tell its grains"):
                await ask_facts(line, mute, 0.01, road.ways.metrics)
        assert (line.connected, line.breaker.failures) == (False, 1)
