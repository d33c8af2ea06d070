"""The MQTT downlink on a real mosquitto, with the rooms of a station behind it and devices that the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.messages import (
    Beat,
    Cancel,
    Confirm,
    Deliver,
    Gone,
    Return,
    Running,
    decode_job,
    encode,
)
from device_agent.protocol.outcomes import State
from gateway.jobs import collect
from tests.peers.broker import Broker, running_broker
from tests.peers.clock import HandClock
from tests.peers.database import look
from tests.peers.site import FIRST, SITE, Scene, gateway, played
from tests.peers.waiting import until

ADD_HOLD = "CREATE TRIGGER hold BEFORE INSERT ON outcomes BEGIN SELECT RAISE(ABORT, 'disk is full'); END"


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


def a_return(jid: str, **changed: Any) -> Return:
    return Return(jid=jid, fun="test.ping", **{"outcome": "ok", "value": True, "executions": 1, **changed})


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
