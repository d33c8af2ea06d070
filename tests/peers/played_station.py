"""A station played by a test: welcomes devices, says what it is told to say, and keeps all it hears."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.protocol import bitmap, topics
from device_agent.protocol.messages import (
    Beat,
    Confirm,
    Deliver,
    Downward,
    Gone,
    Hello,
    Job,
    Return,
    RollCall,
    Running,
    Welcome,
    decode_upward,
    encode,
)
from tests.peers.waiting import until


class PlayedStation:
    """What was heard of each device, in order."""

    def __init__(self, address: BrokerAddress, site: str) -> None:
        self.site = site
        self.hellos: dict[str, list[Hello]] = defaultdict(list)
        self.gone: dict[str, list[Gone]] = defaultdict(list)
        self.beats: dict[str, list[Beat]] = defaultdict(list)
        self.running: dict[str, list[str]] = defaultdict(list)
        self.returns: dict[str, dict[str, list[Return]]] = defaultdict(lambda: defaultdict(list))
        self.indices: dict[str, int] = {}
        self.welcomes = True
        self.beat_seconds = 60.0
        self.link = MqttLink(
            address,
            f"station-{site}",
            subscriptions=[topics.station_filter(site)],
            on_message=self._heard,
            on_connected=self._roll_call,
            on_lost=lambda: None,
            count=lambda _name: None,
            incoming=65_536,
            name="played-station",
        )

    async def say(self, message: Downward, *devices: str) -> None:
        """To these devices, or to the whole site."""
        payload = encode(message)
        if devices:
            await self.link.publish_many((topics.device_job(self.site, device), payload) for device in devices)
        else:
            topic = topics.group_ack if isinstance(message, Confirm) else topics.group_job
            await self.link.publish(topic(self.site), payload)

    async def deliver(self, job: Job, *devices: str, remaining: float = 300.0) -> None:
        """One message to each of these devices, or one to all that were ever welcomed."""
        bits = None if devices else bitmap.pack(self.indices.values())
        await self.say(Deliver(encode(job), remaining, bits), *devices)

    async def joined(self, devices: Sequence[str], times: int = 1) -> None:
        """Wait until each of these devices has said hello so often."""
        await until(
            lambda: all(len(self.hellos[device]) >= times for device in devices),
            what=f"hello number {times} of {devices}",
        )

    async def returned(self, jid: str, device: str, times: int = 1) -> list[Return]:
        """Wait for what a device returned of a job; every return it sent."""
        await until(
            lambda: len(self.returns[jid][device]) >= times, what=f"return number {times} of {device} for {jid}"
        )
        return self.returns[jid][device]

    async def _roll_call(self) -> None:
        await self.say(RollCall())

    async def _heard(self, topic: str, payload: bytes) -> None:
        device = topics.sender(topic)
        message = decode_upward(payload)
        match message:
            case Hello():
                self.hellos[device].append(message)
                if self.welcomes:
                    index = self.indices.setdefault(device, len(self.indices))
                    await self.say(Welcome(message.session, index, self.beat_seconds), device)
            case Gone():
                self.gone[device].append(message)
            case Beat():
                self.beats[device].append(message)
            case Running():
                self.running[device].append(message.jid)
            case Return():
                self.returns[message.jid][device].append(message)


@asynccontextmanager
async def played_station(address: BrokerAddress, site: str = "lisbon") -> AsyncIterator[PlayedStation]:
    """A station that is connected, for as long as the block lasts."""
    station = PlayedStation(address, site)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(station.link.run())
        try:
            await until(lambda: station.link.state.connected, what="the played station's connection")
            yield station
        finally:
            running.cancel()


def a_job(number: int, **fields: Any) -> Job:
    """A job for everyone."""
    given = {"tgt": "*", "fun": "test.ping", "user": "ops", "issued": 0.0, "expires": 300.0, **fields}
    return Job(jid=f"{number:020d}", **given)
