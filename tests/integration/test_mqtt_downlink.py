"""The MQTT downlink on a real mosquitto, with the rooms of a station behind it and devices that the test plays."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.messages import (
    Beat,
    Cancel,
    Confirm,
    Deliver,
    Downward,
    Gone,
    Hello,
    Return,
    RollCall,
    Running,
    Upward,
    Welcome,
    decode_downward,
    decode_job,
    encode,
)
from device_agent.protocol.outcomes import State
from gateway.downlinks import mqtt as downlink_module
from gateway.downlinks.mqtt import MqttDownlink
from gateway.jobs import collect
from gateway.jobs.accept import JobRequest
from gateway.jobs.open_jobs import OpenJob
from gateway.rooms import Rooms
from tests.peers.broker import Broker, free_port, running_broker
from tests.peers.clock import HandClock
from tests.peers.database import look, opened_rooms
from tests.peers.waiting import until

SITE = "lisbon"
FIRST, SECOND = "1" * 16, "2" * 16
ADD_HOLD = "CREATE TRIGGER hold BEFORE INSERT ON outcomes BEGIN SELECT RAISE(ABORT, 'disk is full'); END"


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


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as made:
        yield made


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


def a_return(jid: str, **changed: Any) -> Return:
    return Return(jid=jid, fun="test.ping", **{"outcome": "ok", "value": True, "executions": 1, **changed})


# --- how a message is spread -----------------------------------------------------------------------------------------

TEN = [f"cam-{number}" for number in range(10)]


def _as_many(found: Callable[[], list[Any]], count: int) -> bool:
    return len(found()) == count


@pytest.mark.parametrize(("meant", "broadcasts"), [(10, 1), (6, 1), (5, 0), (2, 0), (1, 0)])
async def test_most_of_a_site_is_one_broadcast_and_less_is_one_message_each(
    meant: int, broadcasts: int, scene: Scene
) -> None:
    devices = scene.devices
    await devices.join(*TEN)
    spread: list[Callable[[list[str]], Awaitable[None]]] = [
        lambda names: scene.downlink.deliver(b"job", 7.5, names),
        lambda names: scene.downlink.cancel("1" * 20, names),
        lambda names: scene.downlink.confirm("1" * 20, names),
    ]
    names = TEN[10 - meant :]
    for send, kind in zip(spread, (Deliver, Cancel, Confirm), strict=True):
        await send(names)
        told = partial(devices.of, kind, "all", *TEN)
        await until(partial(_as_many, told, broadcasts or meant), what=f"{kind.__name__} for {meant} of ten")
        assert len(devices.of(kind, "all")) == broadcasts
        bits = bitmap.pack(devices.places[name] for name in names) if broadcasts else None
        assert {message.bitmap for message in devices.of(kind, "all", *TEN)} == {bits}
        if not broadcasts:
            assert [len(devices.of(kind, name)) for name in TEN] == [0] * (10 - meant) + [1] * meant
    assert scene.rooms.metrics.counters["mqtt_broadcasts"] == 3 * broadcasts


async def test_the_only_device_of_a_site_is_spoken_to_itself(scene: Scene) -> None:
    await scene.devices.join("cam")
    await scene.downlink.deliver(b"job", 1.0, ["cam"])
    await until(lambda: scene.devices.of(Deliver, "cam"), what="the job")
    assert scene.devices.of(Deliver, "all") == []


async def test_those_that_are_away_do_not_make_a_broadcast_dearer(scene: Scene) -> None:
    """Most of those who are here is what counts."""
    await scene.devices.join(*TEN)
    for name in TEN[4:]:
        await scene.devices.say(name, Gone(FIRST))
    await until(lambda: scene.rooms.registry.present() == 4, what="six have left")
    await scene.downlink.deliver(b"job", 1.0, TEN[:3])
    await until(lambda: scene.devices.of(Deliver, "all"), what="the broadcast")


async def test_without_a_broker_sending_is_only_late(scene: Scene, broker: Broker) -> None:
    await scene.devices.join("a", "b")
    await broker.kill()
    await until(lambda: not scene.downlink.status()["connected"], what="the loss")
    await scene.downlink.deliver(b"job", 1.0, ["a", "b"])
    await scene.downlink.confirm("1" * 20, ["a"])


# --- joining and presence --------------------------------------------------------------------------------------------


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


# --- jobs ------------------------------------------------------------------------------------------------------------


async def test_a_return_is_confirmed_only_after_its_commit(scene: Scene) -> None:
    await scene.devices.join("cam")
    opened = await scene.issue("cam")
    jid = opened.job.jid
    await until(lambda: scene.devices.of(Deliver, "cam"), what="the job")
    assert decode_job(scene.devices.of(Deliver, "cam")[0].job) == opened.job
    await scene.rooms.writer.commit([(ADD_HOLD, [()])])
    await scene.devices.say("cam", a_return(jid, value="first"))
    await until(lambda: scene.rooms.metrics.counters["returns_not_committed"], what="the failure")
    assert scene.devices.of(Confirm, "cam", "all") == []
    assert scene.rooms.open_jobs.get(jid) is opened
    await scene.rooms.writer.commit([("DROP TRIGGER hold", [()])])
    # Unconfirmed, the device says it again.
    await scene.devices.say("cam", a_return(jid, value="first"))
    await until(lambda: scene.devices.of(Confirm, "cam"), what="the confirmation")
    assert scene.devices.of(Confirm, "cam")[0].jids == [jid]
    assert look(scene.rooms.writer._path, "SELECT outcome, executions FROM outcomes") == [("ok", 1)]
    await until(lambda: scene.rooms.open_jobs.get(jid) is None, what="the close")


async def test_confirmations_of_a_whole_site_are_one_message(scene: Scene) -> None:
    await scene.devices.join(*TEN)
    opened = await scene.issue(*TEN)
    jid = opened.job.jid
    await scene.devices.link.publish_many(
        (topics.device_up(SITE, name, "return"), encode(a_return(jid))) for name in TEN
    )

    def confirmed() -> bool:
        sent = scene.devices.of(Confirm, "all", *TEN)
        bits = [message.bitmap for message in scene.devices.of(Confirm, "all")]
        alone = {name for name in TEN if scene.devices.of(Confirm, name)}
        return bool(sent) and all(
            name in alone or any(bitmap.has(each, scene.devices.places[name]) for each in bits) for name in TEN
        )

    await until(confirmed, what="everybody is confirmed")
    assert len(scene.devices.of(Confirm, "all", *TEN)) < 10
    assert dict(opened.counts) == {"ok": 10}


async def test_a_repeated_return_is_counted_once_and_confirmed_again(scene: Scene) -> None:
    await scene.devices.join("cam")
    jid = (await scene.issue("cam")).job.jid
    for times in (1, 2):
        await scene.devices.say("cam", a_return(jid))
        await until(lambda: len(scene.devices.of(Confirm, "cam")) == times, what=f"confirmation {times}")  # noqa: B023 - called at once
    assert scene.rooms.metrics.counters["returns_repeated"] == 1
    assert look(scene.rooms.writer._path, "SELECT count(*) FROM outcomes") == [(1,)]


async def test_a_return_of_a_job_nobody_gave_is_refused_with_the_device_named(scene: Scene) -> None:
    await scene.devices.join("cam", "other")
    opened = await scene.issue("other")
    await scene.devices.say("cam", a_return("9" * 20))
    await scene.devices.say("cam", a_return(opened.job.jid))
    await until(lambda: scene.refused() == {"unexpected_return": 2}, what="two refusals")
    assert scene.rooms.metrics.peers["mqtt", "unexpected_return", "cam"] == 2
    assert look(scene.rooms.writer._path, "SELECT * FROM outcomes") == []


async def test_a_return_after_the_verdict_is_told_and_changes_nothing(scene: Scene) -> None:
    await scene.devices.join("cam")
    opened = await scene.issue("cam")
    jid = opened.job.jid
    scene.clock.move(limits.JOB_EXPIRY_SECONDS + limits.RETURN_WINDOW_SECONDS + 1)
    scene.rooms.delivery.kick()
    opened.look_at = 0.0
    await until(lambda: scene.rooms.open_jobs.get(jid) is None, what="the verdict")
    assert dict(opened.counts) == {"unknown": 1}
    with scene.rooms.bus.subscribe(f"salt/job/{jid}/ret/*") as heard:
        await scene.devices.say("cam", a_return(jid))
        await until(heard.queue.qsize, what="the event")
        event = heard.queue.get_nowait()
    assert (event.data["late"], event.data["recorded"], event.data["outcome"]) == (True, "unknown", "ok")
    await until(lambda: scene.devices.of(Confirm, "cam"), what="the confirmation")
    assert look(scene.rooms.writer._path, "SELECT outcome FROM outcomes") == [("unknown",)]


async def test_a_device_that_said_nothing_gets_the_job_again_and_one_that_runs_it_does_not(scene: Scene) -> None:
    await scene.devices.join("silent", "running")
    opened = await scene.issue("silent", "running")
    jid = opened.job.jid
    devices = scene.devices
    await until(lambda: devices.of(Deliver, "all"), what="the broadcast")
    await devices.say("running", Running(jid))
    await until(lambda: opened.waiting["running"].state is State.RUNNING, what="it runs")
    scene.clock.move(limits.RESEND_FIRST_SECONDS)
    scene.rooms.delivery.kick()
    await until(lambda: devices.of(Deliver, "silent"), what="the repeat")
    assert devices.of(Deliver, "running") == []
    (again,) = devices.of(Deliver, "silent")
    assert again.remaining == pytest.approx(limits.JOB_EXPIRY_SECONDS - limits.RESEND_FIRST_SECONDS)


async def test_a_beat_that_names_the_job_is_as_good_as_running(scene: Scene) -> None:
    await scene.devices.join("cam")
    opened = await scene.issue("cam")
    await scene.devices.say("cam", Beat(FIRST, [opened.job.jid]))
    await until(lambda: opened.waiting["cam"].state is State.RUNNING, what="it runs")


async def test_a_cancel_goes_to_those_that_have_the_job_and_ends_it_for_the_others(scene: Scene) -> None:
    await scene.devices.join("here")
    await scene.devices.join("away")
    await scene.devices.say("away", Gone(FIRST))
    await until(lambda: scene.rooms.registry.present() == 1, what="one has left")
    opened = await scene.issue("here", "away", late="run")
    jid = opened.job.jid
    await until(lambda: scene.devices.of(Deliver, "here"), what="the job")
    await scene.rooms.delivery.cancel(jid)
    await until(lambda: scene.devices.of(Cancel, "here") == [Cancel(jid)], what="the cancel")
    await until(lambda: dict(opened.counts) == {"cancelled": 1}, what="the outcome of the other")
    await scene.devices.say("here", a_return(jid, outcome="cancelled", value=None, executions=0))
    await until(lambda: scene.rooms.open_jobs.get(jid) is None, what="the close")
    assert dict(opened.counts) == {"cancelled": 2}


async def test_what_arrived_is_confirmed_before_the_link_closes(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "CONFIRM_SECONDS", 60.0)
    async with played(broker.address) as devices:
        async with gateway(tmp_path / "state", broker.address, HandClock()) as (rooms, downlink):
            scene = Scene(rooms, downlink, devices, HandClock())
            await devices.join("cam")
            jid = (await scene.issue("cam")).job.jid
            await devices.say("cam", a_return(jid))
            await until(lambda: rooms.open_jobs.get(jid) is None, what="the close")
            assert devices.of(Confirm, "cam") == []
        await until(lambda: devices.of(Confirm, "cam"), what="the confirmation")


# --- hostile devices -------------------------------------------------------------------------------------------------


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
