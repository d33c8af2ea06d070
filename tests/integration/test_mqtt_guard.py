"""The guard of a real device and the downlink of a real station, with a real mosquitto between them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from device_agent.counters import Counters
from device_agent.guard import Guard
from device_agent.heard import Cancelled, Delivery, Heard, SessionLost, SessionOpened
from device_agent.identity import Identity
from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.protocol.messages import Beat, Confirm, Hello, Return, Welcome, encode
from device_agent.trust.chain import Anchor
from device_agent.trust.floor import Floor
from gateway.jobs import collect
from tests.peers import fleet
from tests.peers.broker import running_broker
from tests.peers.clock import HandClock
from tests.peers.desk import Desk
from tests.peers.played_device import FIRST, played
from tests.peers.site import Scene, party_of, running_gateway
from tests.peers.waiting import until


class GuardedDevice:
    """A guard on a connection of its own; it says hello in each session, and keeps what it heard."""

    def __init__(self, keys: fleet.PlayedDevice, pinned: bytes, address: BrokerAddress, clock: HandClock) -> None:
        self.clock = clock
        self.heard: list[Heard] = []
        self.counters = Counters()
        self.identity = Identity(keys.key, keys.kem, Anchor(pinned), Floor(0))
        self.identity.site, self.identity.name, self.identity.certificate = fleet.SITE, keys.name, keys.certificate
        self.said: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.guard = Guard(
            self.identity,
            marks={},
            publish=lambda topic, payload: self.said.put_nowait((topic, payload)),
            clock=clock,
            counters=self.counters,
            randomness=random.Random(1),
        )
        self.link = MqttLink(
            address,
            self.identity.did,
            subscriptions=self.guard.subscriptions(),
            on_message=self.hear,
            on_connected=self.connected,
            on_lost=self.guard.lost,
            count=lambda _: None,
            will=self.begin,
        )

    def begin(self) -> tuple[str, bytes]:
        self.will = self.guard.begin()
        return self.will

    async def connected(self) -> None:
        self.guard.connected()

    def hear(self, topic: str, payload: bytes) -> None:
        heard = self.guard.receive(topic, payload)
        if isinstance(heard, SessionOpened):
            self.guard.send(encode(Hello(FIRST, "0.1.0", {})))
        if heard is not None:
            self.heard.append(heard)

    def of(self, kind: type) -> list[Heard]:
        return [heard for heard in self.heard if isinstance(heard, kind)]

    async def speak(self) -> None:
        while True:
            await self.link.publish(*await self.said.get())


@asynccontextmanager
async def guarded(scene: Scene, name: str, address: BrokerAddress, clock: HandClock) -> AsyncIterator[GuardedDevice]:
    keys = scene.devices.fleet.device(name, issuer=party_of(scene.gateway))
    scene.gateway.desk.enrol(keys)
    device = GuardedDevice(keys, scene.devices.fleet.fingerprint, address, clock)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(device.link.run()), group.create_task(device.speak())]
        try:
            yield device
        finally:
            for task in tasks:
                task.cancel()


async def test_a_guard_and_a_station_understand_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "CONFIRM_SECONDS", 0.01)
    clock, made, desk, state = HandClock(), fleet.Fleet(), Desk(), tmp_path / "state"
    async with (
        running_broker(tmp_path) as broker,
        played(broker.address, made, clock) as devices,
        running_gateway(state, broker.address, clock, made, desk, working=True) as gateway,
    ):
        scene = Scene(gateway, devices, clock)
        async with guarded(scene, "cam", broker.address, clock) as cam:
            await _tells_of_jobs(scene, cam)
            # What the broker says when the connection is lost: the will of this connection, whatever was opened on it.
            await devices.publish(*cam.will)
            await until(lambda: gateway.registry.present() == 0, what="its absence")
            assert gateway.metrics.refusals == {("mqtt", "unknown_session"): 1}


async def _tells_of_jobs(scene: Scene, cam: GuardedDevice) -> None:
    gateway, did = scene.gateway, cam.identity.did
    await until(lambda: cam.of(Welcome), what="the welcome")
    await until(lambda: cam.identity.groups.epoch == 1, what="the group key")
    opened = await scene.issue("cam")
    await until(lambda: cam.of(Delivery), what="the job")
    (delivery,) = cam.of(Delivery)
    assert isinstance(delivery, Delivery)
    job, remaining = delivery.open()
    assert (job.jid, job.fun, remaining > 0) == (opened.job.jid, "test.ping", True)
    answer = Return(jid=job.jid, fun=job.fun, outcome="ok", value=True, executions=1)
    cam.guard.send(encode(answer))
    await until(lambda: Confirm([job.jid]) in cam.heard, what="the confirmation")
    await gateway.downlink.cancel("3" * 20, ["cam"])
    await until(lambda: Cancelled("3" * 20, named=True) in cam.heard, what="the cancel")
    await gateway.epochs.rotate(revocation=True)
    await until(lambda: cam.identity.groups.epoch == 2, what="the next group key")
    # A station that has forgotten the session calls, and the device opens another on the same connection.
    gateway.sessions.drop([did])
    cam.guard.send(encode(Beat(FIRST)))
    await until(lambda: cam.of(SessionLost), what="the call")
    scene.clock.move(5.0)
    cam.guard.tick(scene.clock.monotonic())
    await until(lambda: len(cam.of(SessionOpened)) == 2, what="another session")
    await until(lambda: gateway.registry.present() == 1, what="its presence")
    assert cam.counters.refusals == {}
