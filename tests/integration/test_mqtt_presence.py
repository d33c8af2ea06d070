"""The MQTT downlink on a real mosquitto: who is there, and who should not be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.protocol import limits, topics
from device_agent.protocol.messages import (
    Beat,
    Deliver,
    Gone,
    Hello,
    Return,
    RollCall,
    Welcome,
    encode,
)
from device_agent.protocol.outcomes import State
from gateway.downlinks import mqtt as downlink_module
from gateway.jobs import collect
from gateway.jobs.accept import JobRequest
from tests.peers.broker import Broker, free_port, running_broker
from tests.peers.clock import HandClock
from tests.peers.database import look
from tests.peers.site import FIRST, SECOND, SITE, Scene, gateway, played
from tests.peers.waiting import until


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as made:
        yield made


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(collect, "CONFIRM_SECONDS", 0.01)
    monkeypatch.setattr(collect, "RETRY_SECONDS", 0.01)
    clock = HandClock()
    async with (
        played(broker.address) as devices,
        gateway(tmp_path / "state", broker.address, clock) as (rooms, downlink),
    ):
        yield Scene(rooms, downlink, devices, clock)


async def test_a_device_is_welcome_with_the_place_that_is_on_disk(scene: Scene) -> None:
    await scene.devices.join("a", "b")
    assert scene.devices.of(Welcome, "b") == [Welcome(FIRST, scene.devices.places["b"], limits.BEAT_SECONDS)]
    rows = look(scene.rooms.writer._path, "SELECT id, place, present, link FROM devices ORDER BY id")
    assert rows == [("a", scene.devices.places["a"], 1, "mqtt"), ("b", scene.devices.places["b"], 1, "mqtt")]


async def test_nobody_is_welcome_while_the_disk_is_full(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downlink_module, "WELCOME_RETRY_SECONDS", 0.01)
    hold = "CREATE TRIGGER hold BEFORE INSERT ON devices BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await scene.rooms.writer.commit([(hold, [()])])
    await scene.devices.say("cam", Hello(FIRST, "0", {}))
    await until(lambda: scene.rooms.writer.failures >= 2, what="two tries")
    assert scene.devices.of(Welcome, "cam") == []
    await scene.rooms.writer.commit([("DROP TRIGGER hold", [()])])
    await until(lambda: scene.devices.of(Welcome, "cam"), what="the welcome")


async def test_a_station_that_starts_calls_the_roll(scene: Scene) -> None:
    await until(lambda: scene.devices.of(RollCall, "all"), what="the roll call")


async def test_a_last_will_makes_a_device_absent_at_once(scene: Scene, broker: Broker) -> None:
    def die(topic: str, payload: bytes) -> None:
        raise ConnectionAbortedError("the plug is pulled")

    cam = MqttLink(
        broker.address,
        "cam",
        subscriptions=[topics.device_job(SITE, "cam")],
        on_message=die,
        on_connected=lambda: cam.publish(topics.device_up(SITE, "cam", "hello"), encode(Hello(SECOND, "0", {}))),
        on_lost=lambda: None,
        count=lambda _: None,
        will=lambda: (topics.device_up(SITE, "cam", "gone"), encode(Gone(SECOND))),
    )
    # The welcome is what it dies of.
    with pytest.raises(ConnectionAbortedError):
        await cam.run()
    await until(lambda: scene.rooms.registry.own_device("cam") is not None, what="the device is known")
    known = scene.rooms.registry.own_device("cam")
    assert known is not None
    await until(lambda: not known.present, what="its absence")
    jid = await scene.rooms.acceptance.submit(JobRequest(tgt="cam", fun="test.ping"), "ops")
    assert (await scene.rooms.views.one(jid))["counts"] == {"unreachable": 1}


async def test_a_device_that_says_nothing_is_gone_after_a_while(scene: Scene) -> None:
    await scene.devices.join("silent", "beating")
    scene.clock.move(limits.BEAT_SECONDS * limits.SILENT_BEATS - 1)
    await scene.devices.say("beating", Beat(FIRST))
    beating, silent = (scene.rooms.registry.own_device(name) for name in ("beating", "silent"))
    assert beating is not None
    assert silent is not None
    await until(lambda: beating.heard == scene.clock.monotonic(), what="the beat")
    scene.clock.move(2)
    await until(lambda: not silent.present, what="the silence is noticed")
    assert beating.present


async def test_a_beat_of_an_unknown_session_is_answered_with_a_roll_call_for_that_device_alone(scene: Scene) -> None:
    await scene.devices.join("cam")
    await scene.devices.say("cam", Beat(SECOND))
    await until(lambda: scene.devices.of(RollCall, "cam"), what="the roll call")
    assert len(scene.devices.of(RollCall, "all")) == 1


async def test_after_the_broker_was_away_nobody_is_known_to_be_here_until_heard(scene: Scene, broker: Broker) -> None:
    await scene.devices.join("a", "b")
    await broker.kill()
    known = {name: scene.rooms.registry.own_device(name) for name in ("a", "b")}
    assert all(known.values())
    await until(lambda: scene.rooms.registry.present() == 0, what="nobody is here")
    assert all(device is not None and device.unheard for device in known.values())
    await broker.start()
    await until(lambda: scene.devices.link.state.connected, what="the devices' connection")
    await until(lambda: scene.downlink.status()["connected"], what="the station's connection")
    opened = await scene.issue("a", "b")
    assert {waiting.state for waiting in opened.waiting.values()} == {State.QUEUED}
    await scene.devices.join("a", session=SECOND)
    await until(lambda: scene.devices.of(Deliver, "a"), what="the job for the one that is back")
    assert scene.devices.of(Deliver, "b", "all") == []
    assert opened.waiting["b"].state is State.QUEUED


async def test_a_station_starts_without_its_broker_and_finds_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downlink_module, "CONNECT_SECONDS", 0.05)
    made = Broker(tmp_path)
    async with gateway(tmp_path / "state", made.address, HandClock()) as (_, downlink):
        assert not downlink.status()["connected"]
        await until(lambda: downlink.status()["last_error"], what="the reason")
        await made.start()
        try:
            await until(lambda: downlink.status()["connected"], what="the connection")
        finally:
            await made.stop()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "malformed"),
        (b"\xc1", "malformed"),
        (b"\x91" * 5000, "wrong_type"),
        (msgspec.msgpack.encode({"type": "hello", "session": FIRST, "agent": "0", "grains": [1]}), "wrong_type"),
        (msgspec.msgpack.encode({"type": "hello", "session": "x", "agent": "0", "grains": {}}), "wrong_type"),
        (encode(Hello(FIRST, "0", {"x": "y" * limits.GRAINS_BYTES})), "grains_too_large"),
        (msgspec.msgpack.encode({"type": "hello", "session": FIRST, "agent": "0", "grains": {1: 2}}), "wrong_type"),
        (encode(Deliver(b"job", 1.0)), "wrong_type"),
        (encode(Return(jid="1" * 20, fun="f.f", outcome="ok", duration=float("inf"))), "wrong_type"),
        (bytes(limits.MESSAGE_BYTES + 1), "oversized"),
    ],
)
async def test_nonsense_is_counted_with_the_device_named_and_the_next_message_is_heard(
    body: bytes, reason: str, scene: Scene
) -> None:
    await scene.devices.say("mallory", body)
    await scene.devices.join("cam")
    assert scene.refused() == {reason: 1}
    assert list(scene.rooms.metrics.peers) == [("mqtt", reason, "mallory")]
    assert scene.rooms.registry.own_device("mallory") is None


@pytest.mark.parametrize("device", ["-dash-first", "x" * 129, "sp ace", "per%cent", "é", "a,b"])
async def test_a_topic_whose_device_is_no_id_is_refused(device: str, scene: Scene) -> None:
    await scene.devices.say(device, Hello(FIRST, "0", {}))
    await scene.devices.join("cam")
    assert scene.refused() == {"bad_topic": 1}
    assert [known.id for known in scene.rooms.registry.own()] == ["cam"]


async def test_a_full_registry_refuses_the_next_device_and_serves_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.devices.join("a", "b")
    monkeypatch.setattr(limits, "DEVICES_PER_STATION", 2)
    await scene.devices.say("one-too-many", Hello(FIRST, "0", {}))
    await until(lambda: scene.refused() == {"registry_full": 1}, what="the refusal")
    await scene.devices.say("b", Beat(SECOND))
    await until(lambda: scene.devices.of(RollCall, "b"), what="an answer to the others")


async def test_a_port_without_a_broker_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downlink_module, "CONNECT_SECONDS", 0.05)
    async with gateway(tmp_path, BrokerAddress("127.0.0.1", free_port()), HandClock()) as (_, downlink):
        status = downlink.status()
        await until(lambda: downlink.status()["last_error"], what="the reason")
        assert not status["connected"]
        assert "refused" in downlink.status()["last_error"]
