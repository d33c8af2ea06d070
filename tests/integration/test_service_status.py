"""What a real station tells the service manager: ready, its state in one sentence, and that it works."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK
from device_agent.mqtt import BrokerAddress, MqttLink
from gateway.fleet.rehearsed import RehearsedFleet
from gateway.service_status import StoreJudge
from gateway.store.migrate import migrate
from gateway.store.writer import Writer
from tests.peers.broker import Broker, free_port
from tests.peers.clock import HandClock
from tests.peers.notified import PlayedSupervisor, played_supervisor
from tests.peers.station import StationProcess
from tests.peers.waiting import until


@pytest.fixture
def manager() -> Iterator[PlayedSupervisor]:
    with played_supervisor() as found:
        yield found


def station(tmp_path: Path, manager: PlayedSupervisor, role: str = "gateway", watchdog: float = 0.0) -> StationProcess:
    made = StationProcess(tmp_path, role, {"broker": {"port": free_port()}} if role == "gateway" else {})
    made.environment = manager.environment(watchdog_seconds=watchdog)
    return made


async def test_a_gateway_is_ready_when_it_serves_and_says_who_is_here(
    tmp_path: Path, manager: PlayedSupervisor
) -> None:
    RehearsedFleet(tmp_path / "fleet").certify(tmp_path / "state", "lisbon")
    gateway = station(tmp_path, manager, watchdog=4.0)
    await gateway.start()
    try:
        said = await manager.until_ready()
        assert said == "lisbon: 0 of 0 devices here, no master, 0 waiting to go up"
        assert [message[0] for message in manager.heard][:2] == ["EXTEND_TIMEOUT_USEC=1800000000", "READY=1"]
        assert gateway.socket.exists()
        await until(lambda: manager.fed() > 1, 60, "food for the watchdog")
    finally:
        assert await gateway.stop() == EXIT_OK
    assert any("STOPPING=1" in message for message in manager.heard)


async def test_a_gateway_that_has_not_joined_says_what_to_type(tmp_path: Path, manager: PlayedSupervisor) -> None:
    gateway = station(tmp_path, manager)
    await gateway.start()
    try:
        assert await manager.until_ready() == "lisbon: not joined yet: sudo outstation gateway join"
    finally:
        await gateway.stop()


async def test_a_master_outside_every_fleet_says_so(tmp_path: Path, manager: PlayedSupervisor) -> None:
    master = station(tmp_path, manager, role="master")
    master.write({**master.settings, "sites": {"listen": f"tcp://127.0.0.1:{free_port()}"}})
    await master.start()
    try:
        assert (await manager.until_ready()).startswith("lisbon: in no fleet yet: outstation master init")
    finally:
        await master.stop()


async def test_settings_that_are_wrong_are_the_last_status(tmp_path: Path, manager: PlayedSupervisor) -> None:
    gateway = station(tmp_path, manager)
    gateway.write({**gateway.settings, "log_levle": "info"})
    await gateway.start()
    assert await gateway.ended() == EXIT_CONFIG
    assert "there is no such setting" in manager.status
    assert "try: did you mean 'log_level'?" in manager.status
    assert not manager.ready


async def test_a_part_that_fails_is_the_last_status(tmp_path: Path, manager: PlayedSupervisor) -> None:
    gateway = station(tmp_path, manager)
    await gateway.start()
    await manager.until_ready()
    pid = (await gateway.answers())["broker"]["pid"]
    os.kill(pid, signal.SIGKILL)
    assert await gateway.ended() == EXIT_NOT_ALL_OK
    assert manager.status.startswith("crashed: the broker ended by itself")


async def test_a_store_is_asked_to_commit_only_when_it_did_not_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "station.sqlite"
    migrate(path)
    async with Writer(path) as writer:
        judge = StoreJudge(writer, HandClock().wall)
        assert await judge() is None
        before = writer.commits
        assert await judge() is None
        assert writer.commits == before + 1
        await writer.commit([("INSERT OR REPLACE INTO station VALUES ('a', ?)", [("b",)])])
        between = writer.commits
        assert await judge() is None
        assert writer.commits == between


async def test_a_link_that_works_is_not_stuck_and_one_whose_messages_wait_is(tmp_path: Path) -> None:
    broker, clock, gate = Broker(tmp_path), HandClock(), asyncio.Event()
    arrived = asyncio.Event()

    async def held(_topic: str, _payload: bytes) -> None:
        arrived.set()
        await gate.wait()

    async def connected() -> None:
        pass

    await broker.start()
    link = MqttLink(
        BrokerAddress("127.0.0.1", broker.address.port),
        "pulse",
        subscriptions=["a"],
        on_message=held,
        on_connected=connected,
        on_lost=lambda: None,
        count=lambda _: None,
        clock=clock,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(link.run())
        await until(lambda: link.state.connected, what="a connection")
        assert await link.stuck() is None
        for _ in range(3):
            await link.publish("a", b"x")
        await arrived.wait()
        await until(lambda: link._client is not None and link._client.queued == 2, what="two that wait")
        assert await link.stuck() is None
        clock.move(61)
        assert await link.stuck() == "2 messages wait, none was handled for 61 s"
        gate.set()
        await until(lambda: link._client is not None and not link._client.queued, what="an empty queue")
        assert await link.stuck() is None
        # A broker that is away is no reason to start anew: the link comes back by itself.
        await broker.stop()
        await until(lambda: not link.state.connected, what="the loss")
        assert await link.stuck() is None
        running.cancel()
