"""A site: the rooms and the downlink of a gateway on a real broker, and devices that the test plays."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.protocol import topics
from device_agent.protocol.messages import (
    Downward,
    Hello,
    Upward,
    Welcome,
    decode_downward,
    encode,
)
from gateway.downlinks.mqtt import MqttDownlink
from gateway.jobs.accept import JobRequest
from gateway.jobs.open_jobs import OpenJob
from gateway.rooms import Rooms
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from tests.peers.waiting import until

SITE = "lisbon"
FIRST, SECOND = "1" * 16, "2" * 16


class Devices:
    """Every device of the site on one connection: says what the test says, and keeps what each was told."""

    def __init__(self, address: BrokerAddress) -> None:
        self.told: dict[str, list[Downward]] = defaultdict(list)
        """By device id; ``all`` is what was said to the whole site."""
        self.places: dict[str, int] = {}
        self.link = MqttLink(
            address,
            "played-devices",
            subscriptions=[f"os/{SITE}/d/+/job", topics.group_job(SITE), topics.group_ack(SITE)],
            on_message=self._hear,
            on_connected=self._nothing,
            on_lost=lambda: None,
            count=lambda _: None,
            incoming=65_536,
        )

    def _hear(self, topic: str, payload: bytes) -> None:
        name = "all" if topic in (topics.group_job(SITE), topics.group_ack(SITE)) else topic.split("/")[3]
        message = decode_downward(payload)
        self.told[name].append(message)
        if isinstance(message, Welcome):
            self.places[name] = message.index

    async def _nothing(self) -> None:
        return

    async def say(self, device: str, message: Upward | bytes) -> None:
        """A device says something; bytes go as they are."""
        body = message if isinstance(message, bytes) else encode(message)
        await self.link.publish(topics.device_up(SITE, device, "any"), body)

    async def join(self, *names: str, session: str = FIRST) -> None:
        """Devices say hello and are welcome."""
        for name in names:
            await self.say(name, Hello(session, "0.1.0", {"name": name}))
        await until(lambda: all(name in self.places for name in names), what=f"the welcome of {names}")

    def of(self, kind: type[Any], *names: str) -> list[Any]:
        """What these devices (or ``all``) were told of one kind."""
        return [message for name in names for message in self.told[name] if isinstance(message, kind)]


class Scene:
    """A gateway's rooms, its downlink, and the devices."""

    def __init__(self, rooms: Rooms, downlink: MqttDownlink, devices: Devices, clock: HandClock) -> None:
        self.rooms = rooms
        self.downlink = downlink
        self.devices = devices
        self.clock = clock

    async def issue(self, *names: str, **changed: Any) -> OpenJob:
        """A job for these devices."""
        request = JobRequest(tgt=",".join(names), tgt_type="list", fun="test.ping", **changed)
        opened = self.rooms.open_jobs.get(await self.rooms.acceptance.submit(request, "ops"))
        assert opened is not None
        return opened

    def refused(self) -> dict[str, int]:
        """What was refused on this link, by reason."""
        return {reason: count for (link, reason), count in self.rooms.metrics.refusals.items() if link == "mqtt"}


@asynccontextmanager
async def played(address: BrokerAddress) -> AsyncIterator[Devices]:
    devices = Devices(address)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(devices.link.run())
        try:
            await until(lambda: devices.link.state.connected, what="the devices' connection")
            yield devices
        finally:
            running.cancel()


@asynccontextmanager
async def gateway(folder: Path, address: BrokerAddress, clock: HandClock) -> AsyncIterator[tuple[Rooms, MqttDownlink]]:
    """What the station opens for its devices."""
    async with opened_rooms(folder, clock=clock, working=True) as rooms:
        downlink = MqttDownlink(
            site=SITE,
            address=address,
            registry=rooms.registry,
            returns=rooms.collection,
            metrics=rooms.metrics,
            clock=clock,
        )
        rooms.downlinks[downlink.name] = downlink
        async with downlink:
            yield rooms, downlink
