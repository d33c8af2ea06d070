"""The MQTT downlink on a real mosquitto: who is there, and who should not be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.protocol import limits, topics
from device_agent.protocol.messages import Beat, Gone, Hello, Return, Welcome, encode
from device_agent.protocol.outcomes import State
from gateway.downlinks import mqtt as downlink_module
from gateway.downlinks import words as words_module
from gateway.jobs import collect
from gateway.jobs.accept import JobRequest
from tests.peers.broker import Broker, free_port
from tests.peers.clock import HandClock
from tests.peers.desk import Desk
from tests.peers.fleet import SITE, Fleet
from tests.peers.played_device import FIRST, SECOND, Job
from tests.peers.site import Scene, opened_scene, running_gateway
from tests.peers.waiting import until


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(collect, "CONFIRM_SECONDS", 0.01)
    monkeypatch.setattr(collect, "RETRY_SECONDS", 0.01)
    async with opened_scene(tmp_path / "state", broker.address, HandClock(), working=True) as made:
        yield made


async def test_a_device_is_welcome_with_the_place_that_is_on_disk(scene: Scene) -> None:
    await scene.join("a", "b")
    assert scene.devices.of(Welcome, "b") == [Welcome(FIRST, 1, limits.BEAT_SECONDS)]
    rows = scene.gateway.look("SELECT id, place, present, link FROM devices ORDER BY id")
    assert rows == [("a", 0, 1, "mqtt"), ("b", 1, 1, "mqtt")]


async def test_nobody_is_welcome_while_the_disk_is_full(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_module, "WELCOME_RETRY_SECONDS", 0.01)
    scene.add("cam")
    await scene.devices.open("cam")
    hold = "CREATE TRIGGER hold BEFORE INSERT ON devices BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await scene.gateway.writer.commit([(hold, [()])])
    await scene.devices.say("cam", Hello(FIRST, "0", {}))
    await until(lambda: scene.gateway.writer.failures >= 2, what="two tries")
    assert scene.devices.of(Welcome, "cam") == []
    await scene.gateway.writer.commit([("DROP TRIGGER hold", [()])])
    await until(lambda: scene.devices.of(Welcome, "cam"), what="the welcome")


async def test_a_last_will_makes_a_device_absent_at_once(scene: Scene, broker: Broker) -> None:
    (cam,) = await scene.join("cam")
    cam.reconnect()

    def die(topic: str, payload: bytes) -> None:
        raise ConnectionAbortedError("the plug is pulled")

    async def connected() -> None:
        await link.publish(cam.up("ses"), cam.open())

    link = MqttLink(
        broker.address,
        cam.did,
        subscriptions=[topics.device_sok(SITE, cam.did)],
        on_message=die,
        on_connected=connected,
        on_lost=lambda: None,
        count=lambda _: None,
        will=lambda: (cam.up("bye"), cam.bye()),
    )
    # That its session is open is what it dies of.
    with pytest.raises(ConnectionAbortedError):
        await link.run()
    await until(lambda: scene.gateway.registry.present() == 0, what="its absence")
    jid = await scene.gateway.rooms.acceptance.submit(JobRequest(tgt="cam", fun="test.ping"), "ops")
    assert (await scene.gateway.rooms.views.one(jid))["counts"] == {"unreachable": 1}


async def test_a_device_that_stops_says_so_and_its_session_is_over(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    await scene.devices.say("cam", Gone(FIRST, "stopped"))
    await until(lambda: scene.gateway.registry.present() == 0, what="its absence")
    assert scene.gateway.sessions.find(cam.did) is None


async def test_a_device_that_says_nothing_is_gone_after_a_while(scene: Scene) -> None:
    await scene.join("silent", "beating")
    scene.clock.move(limits.BEAT_SECONDS * limits.SILENT_BEATS - 1)
    await scene.devices.say("beating", Beat(FIRST))
    beating, silent = (scene.gateway.registry.own_device(name) for name in ("beating", "silent"))
    assert beating is not None
    assert silent is not None
    await until(lambda: beating.heard == scene.clock.monotonic(), what="the beat")
    scene.clock.move(2)
    await until(lambda: not silent.present, what="the silence is noticed")
    assert beating.present
    assert beating.refused == {}
    await scene.devices.say("beating", Beat(FIRST, refused={"bad_signature": 3}))
    await until(lambda: beating.refused == {"bad_signature": 3}, what="what the device refused")


async def test_after_the_broker_was_away_nobody_is_known_to_be_here_until_heard(scene: Scene, broker: Broker) -> None:
    a, _ = await scene.join("a", "b")
    before = a.prekey
    await broker.kill()
    known = {name: scene.gateway.registry.own_device(name) for name in ("a", "b")}
    assert all(known.values())
    await until(lambda: scene.gateway.registry.present() == 0, what="nobody is here")
    assert all(device is not None and device.unheard for device in known.values())
    await broker.start()
    await until(lambda: scene.devices.link.state.connected, what="the devices' connection")
    await until(lambda: scene.gateway.downlink.status()["connected"], what="the station's connection")
    await until(lambda: a.prekey != before, what="the call to open another session")
    opened = await scene.issue("a", "b")
    assert {waiting.state for waiting in opened.waiting.values()} == {State.QUEUED}
    a.reconnect()
    await scene.devices.join("a", session=SECOND)
    await until(lambda: scene.devices.of(Job, "a"), what="the job for the one that is back")
    assert scene.devices.of(Job, "b") == []
    assert opened.waiting["b"].state is State.QUEUED


async def test_a_station_starts_without_its_broker_and_finds_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downlink_module, "CONNECT_SECONDS", 0.05)
    made = Broker(tmp_path)
    async with running_gateway(tmp_path / "state", made.address, HandClock(), Fleet(), Desk()) as gateway:
        downlink = gateway.downlink
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
        (encode(Welcome(FIRST, 1)), "wrong_type"),
        (encode(Return(jid="1" * 20, fun="f.f", outcome="ok", duration=float("inf"))), "wrong_type"),
    ],
)
async def test_nonsense_in_a_good_frame_is_counted_with_the_device_named_and_the_next_message_is_heard(
    body: bytes, reason: str, scene: Scene
) -> None:
    scene.add("mallory")
    await scene.devices.open("mallory")
    await scene.devices.say("mallory", body)
    await scene.join("cam")
    assert scene.refused() == {reason: 1}
    assert list(scene.gateway.metrics.peers) == [("mqtt", reason, "mallory")]
    assert scene.gateway.registry.own_device("mallory") is None


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("f", b"", "malformed"),
        ("f", bytes(limits.MESSAGE_BYTES + 1), "malformed"),
        ("f", b"\1" * (limits.MESSAGE_BYTES + 1), "unknown_session"),
        ("ses", b"", "malformed"),
        ("ses", b"\xd2\x80", "malformed"),
        ("bye", b"\xd2" * 5000, "malformed"),
        ("hello", encode(Hello(FIRST, "0", {})), "bad_topic"),
    ],
)
async def test_bytes_that_prove_nothing_are_counted_with_the_device_named(
    kind: str, body: bytes, reason: str, scene: Scene
) -> None:
    (mallory,) = scene.add("mallory")
    await scene.devices.publish(mallory.up(kind), body)
    await scene.join("cam")
    assert scene.refused() == {reason: 1}
    assert list(scene.gateway.metrics.peers) == [("mqtt", reason, "mallory")]
    assert len(scene.gateway.sessions) == 1


@pytest.mark.parametrize("device", ["cam-1", "-dash-first", "x" * 26, "A" * 26, "a" * 27, "sp ace", "é", "a,b"])
@pytest.mark.parametrize("kind", ["ses", "f", "bye"])
async def test_a_topic_whose_device_is_no_identity_is_refused(device: str, kind: str, scene: Scene) -> None:
    await scene.devices.publish(f"os/{SITE}/d/{device}/up/{kind}", b"\1" * 50)
    await scene.join("cam")
    assert sum(scene.refused().values()) == 1
    assert set(scene.refused()) <= {"bad_topic", "unknown_device", "unknown_session", "malformed"}
    assert [known.id for known in scene.gateway.registry.own()] == ["cam"]


async def test_a_full_registry_refuses_the_next_device_and_serves_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.join("a", "b")
    scene.add("one-too-many")
    await scene.devices.open("one-too-many")
    monkeypatch.setattr(limits, "DEVICES_PER_STATION", 2)
    await scene.devices.say("one-too-many", Hello(FIRST, "0", {}))
    await until(lambda: scene.refused() == {"registry_full": 1}, what="the refusal")
    known = scene.gateway.registry.own_device("b")
    scene.clock.move(1.0)
    await scene.devices.say("b", Beat(FIRST))
    await until(lambda: known is not None and known.heard == scene.clock.monotonic(), what="the others")


async def test_a_port_without_a_broker_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downlink_module, "CONNECT_SECONDS", 0.05)
    address = BrokerAddress("127.0.0.1", free_port())
    async with running_gateway(tmp_path, address, HandClock(), Fleet(), Desk()) as gateway:
        status = gateway.downlink.status()
        await until(lambda: gateway.downlink.status()["last_error"], what="the reason")
        assert not status["connected"]
        assert "refused" in gateway.downlink.status()["last_error"]
