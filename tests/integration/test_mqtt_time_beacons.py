"""The time beacon on a real mosquitto: one retained broadcast an hour, whatever the number of masters and devices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.mqtt import MqttLink
from device_agent.protocol import topics
from device_agent.trust.time_beacon import read_time_beacon, sign_time_beacon
from tests.peers.broker import Broker
from tests.peers.clock import HandClock
from tests.peers.fleet import SITE, Party
from tests.peers.site import Scene, opened_scene
from tests.peers.waiting import until

HOUR = 3600


class Ear:
    """A client of the broker that keeps the beacons that it hears."""

    def __init__(self, broker: Broker) -> None:
        self.heard: list[int] = []
        self.link = MqttLink(
            broker.address,
            "ear",
            subscriptions=[topics.group_time(SITE)],
            on_message=lambda _, payload: self.heard.append(read_time_beacon(payload).issued),
            on_connected=self._connected,
            on_lost=lambda: None,
            count=lambda _: None,
        )

    async def _connected(self) -> None:
        return


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened_scene(tmp_path / "state", broker.address, HandClock()) as made:
        beacons, downlink = made.gateway.rooms.time_beacons, made.gateway.downlink
        downlink.beacon = beacons.for_devices
        beacons.on_change(downlink.beacon_changed)
        yield made


async def signed_by(scene: Scene, master: Party) -> int:
    """A master signs the time, and the gateway hears it."""
    now = int(scene.clock.wall())
    await scene.gateway.rooms.time_beacons.take(sign_time_beacon(master.key, now), master.name)
    return now


async def test_devices_get_one_beacon_an_hour_of_two_masters_and_who_comes_later_gets_the_newest(
    scene: Scene, broker: Broker
) -> None:
    fleet, ear = scene.devices.fleet, Ear(broker)
    await scene.devices.trusted([])
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(ear.link.run())
        await until(lambda: ear.link.state.connected, what="the ear")
        said = []
        for _ in range(4):
            said.append(await signed_by(scene, fleet.a))
            scene.clock.move(HOUR / 2)
            await signed_by(scene, fleet.b)
            scene.clock.move(HOUR / 2)
        await until(lambda: len(ear.heard) >= len(said), what="the beacons")
        listening.cancel()
    assert ear.heard == said
    late = Ear(broker)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(late.link.run())
        await until(lambda: bool(late.heard), what="the retained beacon")
        listening.cancel()
    assert late.heard == said[-1:]


async def test_a_broker_that_forgot_everything_is_told_the_newest_beacon_again(scene: Scene, broker: Broker) -> None:
    await scene.devices.trusted([])
    first = await signed_by(scene, scene.devices.fleet.a)
    await broker.kill()
    await until(lambda: not scene.gateway.downlink.connected, what="the loss")
    await broker.start()
    await until(lambda: scene.gateway.downlink.connected, what="the connection")
    ear = Ear(broker)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(ear.link.run())
        await until(lambda: bool(ear.heard), what="the retained beacon")
        listening.cancel()
    assert ear.heard == [first]
