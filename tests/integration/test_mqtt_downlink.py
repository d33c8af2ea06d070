"""The MQTT downlink on a real mosquitto: what is sent to whom, and what comes of the answers."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.links import Parcel, Sealed
from device_agent.protocol.messages import Beat, Confirm, Gone, Reseal, Return, Running, encode
from device_agent.protocol.outcomes import State
from device_agent.trust import signed_job
from device_agent.trust.signed_job import JobHeader, Order
from gateway.jobs import collect
from gateway.jobs.reseal import RESEAL_SECONDS
from gateway.jobs.stall_watch import TICK_SECONDS
from tests.peers.broker import Broker
from tests.peers.clock import HandClock
from tests.peers.desk import Desk
from tests.peers.fleet import SITE, Fleet
from tests.peers.played_device import FIRST, Acknowledged, Cancelled, Job, played
from tests.peers.site import Scene, opened_scene, running_gateway
from tests.peers.waiting import until

ADD_HOLD = "CREATE TRIGGER hold BEFORE INSERT ON outcomes BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
JID = "2" * 20
TEN = [f"cam-{number}" for number in range(10)]


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(collect, "CONFIRM_SECONDS", 0.01)
    monkeypatch.setattr(collect, "RETRY_SECONDS", 0.01)
    async with opened_scene(tmp_path / "state", broker.address, HandClock(), working=True) as made:
        yield made


def a_return(jid: str, **changed: Any) -> Return:
    return Return(jid=jid, fun="test.ping", **{"outcome": "ok", "value": True, "executions": 1, **changed})


def header(scene: Scene, sub: str, epoch: int | None) -> JobHeader:
    now = int(scene.clock.wall())
    return JobHeader(
        sub=sub, site=SITE, issued=now, expires=now + 60, jid=JID, seq=now, tgt="*", epoch=epoch, salt=None
    )


def for_all(scene: Scene, *others: Sealed) -> Parcel:
    """A job that a master has sealed for the group, among what it sealed for others."""
    epochs, master = scene.gateway.epochs, scene.devices.fleet.a.key
    body = signed_job.seal_for_group(
        master, header(scene, "all", epochs.epoch), Order(fun="test.ping", user="ops"), epochs.key, bytes(16)
    )
    return Parcel(b"the definition", (Sealed("elsewhere", "", b"of another site"), Sealed(SITE, "", body), *others))


def for_one(scene: Scene, name: str) -> Sealed:
    """A job that a master has sealed for one device."""
    camera, master = scene.devices[name], scene.devices.fleet.a.key
    order = Order(fun="test.ping", arg=[f"for {name}"], user="ops")
    return Sealed(
        SITE,
        name,
        signed_job.seal_for_device(master, header(scene, camera.did, None), order, camera.keys.kem.public),
    )


def _as_many(found: Callable[[], list[Any]], count: int) -> bool:
    return len(found()) == count


@pytest.mark.parametrize(("meant", "broadcasts"), [(10, 1), (6, 1), (5, 0), (2, 0), (1, 0)])
async def test_most_of_a_site_is_one_broadcast_and_less_is_one_message_each(
    meant: int, broadcasts: int, scene: Scene
) -> None:
    devices, published = scene.devices, scene.devices.published
    await scene.join(*TEN)
    names = TEN[10 - meant :]
    group, own = topics.group_job(SITE), [topics.device_job(SITE, devices[name].did) for name in names]
    bits = bitmap.pack(devices[name].place or 0 for name in names)
    before = {topic: len(published[topic]) for topic in own}
    await until(lambda: all(devices[name].groups.epoch for name in names), what="the group key")
    for send, kind in (
        (scene.gateway.downlink.deliver(for_all(scene), 7.5, names), Job),
        (scene.gateway.downlink.cancel(JID, names), Cancelled),
    ):
        await send
        told = partial(devices.of, kind, *TEN)
        await until(partial(_as_many, told, meant), what=f"{kind.__name__} for {meant} of ten")
        assert [len(devices.of(kind, name)) for name in TEN] == [0] * (10 - meant) + [1] * meant
    assert len(published[group]) == 2 * broadcasts
    assert [len(published[topic]) - before[topic] for topic in own] == [0 if broadcasts else 2] * meant
    assert {(job.remaining, job.bitmap) for job in devices.of(Job, *names)} == {(7.5, bits if broadcasts else None)}
    await scene.gateway.downlink.confirm({JID: names})
    confirmation: type[Any] = Acknowledged if broadcasts else Confirm
    await until(partial(_as_many, partial(devices.of, confirmation, *TEN), meant), what=f"{meant} confirmations")
    assert {tuple(message.jids) for message in devices.of(confirmation, *names)} == {(JID,)}
    assert len(published[topics.group_ack(SITE)]) == broadcasts
    assert scene.gateway.metrics.counters["mqtt_broadcasts"] == 3 * broadcasts
    assert all(not devices[name].refused for name in TEN)


async def test_the_only_device_of_a_site_is_spoken_to_itself(scene: Scene) -> None:
    await scene.join("cam")
    await until(lambda: scene.devices["cam"].groups.epoch, what="the group key")
    await scene.gateway.downlink.deliver(for_all(scene), 1.0, ["cam"])
    await until(lambda: scene.devices.of(Job, "cam"), what="the job")
    assert scene.devices.published[topics.group_job(SITE)] == []


async def test_those_that_are_away_do_not_make_a_broadcast_dearer(scene: Scene) -> None:
    """Most of those who are here is what counts."""
    await scene.join(*TEN)
    for name in TEN[4:]:
        await scene.devices.say(name, Gone(FIRST, "stopped"))
    await until(lambda: scene.gateway.registry.present() == 4, what="six have left")
    await scene.gateway.downlink.deliver(for_all(scene), 1.0, TEN[:3])
    await until(lambda: scene.devices.published[topics.group_job(SITE)], what="the broadcast")


async def test_what_is_sealed_for_one_device_goes_to_that_device_alone(scene: Scene) -> None:
    devices = scene.devices
    await scene.join("one", "two", "three")
    await until(lambda: all(devices[name].groups.epoch for name in ("one", "two", "three")), what="the group key")
    parcel = for_all(scene, for_one(scene, "one"), Sealed("elsewhere", "two", b"of another site"))
    await scene.gateway.downlink.deliver(parcel, 7.5, ["one", "two", "three"])
    await until(partial(_as_many, partial(devices.of, Job, "one", "two", "three"), 3), what="the jobs")
    assert {name: devices.of(Job, name)[0].order.arg for name in ("one", "two", "three")} == {
        "one": ["for one"],
        "two": [],
        "three": [],
    }
    (one,) = devices.of(Job, "one")
    assert (one.bitmap, one.sealed.header.sub) == (None, devices["one"].did)
    alone = Parcel(b"", (for_one(scene, "one"),))
    await scene.gateway.downlink.deliver(alone, 7.5, ["one", "two"])
    await until(partial(_as_many, partial(devices.of, Job, "one"), 2), what="the job for one")
    assert scene.gateway.metrics.counters["mqtt_not_sealed"] == 1


async def test_a_cancel_is_signed_once_for_all(scene: Scene) -> None:
    await scene.join("one", "two")
    for names in (["one"], ["two"], ["one", "two"]):
        await scene.gateway.downlink.cancel(JID, names)
    await until(partial(_as_many, partial(scene.devices.of, Cancelled, "one", "two"), 4), what="the cancels")
    assert len(scene.gateway.downlink._sealing._cancels) == 1


async def test_without_a_broker_sending_is_only_late(scene: Scene, broker: Broker) -> None:
    await scene.join("a", "b")
    parcel = for_all(scene, for_one(scene, "b"))
    await broker.kill()
    await until(lambda: not scene.gateway.downlink.status()["connected"], what="the loss")
    await scene.gateway.downlink.deliver(parcel, 1.0, ["a", "b"])
    await scene.gateway.downlink.cancel(JID, ["a", "b"])
    await scene.gateway.downlink.confirm({JID: ["a"]})
    await scene.gateway.downlink.confirm({JID: ["a", "b"]})
    await scene.gateway.epochs.rotate()


async def test_a_return_is_confirmed_only_after_its_commit(scene: Scene) -> None:
    await scene.join("cam")
    opened = await scene.issue("cam")
    jid = opened.job.jid
    await until(lambda: scene.devices.of(Job, "cam"), what="the job")
    (job,) = scene.devices.of(Job, "cam")
    assert (job.jid, job.order.fun, job.sealed.kid) == (jid, "test.ping", scene.gateway.authority.signing.kid)
    await scene.gateway.rooms.writer.commit([(ADD_HOLD, [()])])
    await scene.devices.say("cam", a_return(jid, value="first"))
    await until(lambda: scene.gateway.rooms.metrics.counters["returns_not_committed"], what="the failure")
    assert scene.devices.of(Confirm, "cam") == []
    assert scene.gateway.rooms.open_jobs.get(jid) is opened
    await scene.gateway.rooms.writer.commit([("DROP TRIGGER hold", [()])])
    # Unconfirmed, the device says it again.
    await scene.devices.say("cam", a_return(jid, value="first"))
    await until(lambda: scene.devices.of(Confirm, "cam"), what="the confirmation")
    assert scene.devices.of(Confirm, "cam")[0].jids == [jid]
    assert scene.gateway.look("SELECT outcome, executions FROM outcomes") == [("ok", 1)]
    await until(lambda: scene.gateway.rooms.open_jobs.get(jid) is None, what="the close")


async def test_confirmations_of_a_whole_site_are_one_message(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "CONFIRM_SECONDS", 60.0)
    devices = scene.devices
    await scene.join(*TEN)
    opened = await scene.issue(*TEN)
    jid = opened.job.jid
    await devices.link.publish_many((devices[name].up("f"), devices[name].frame(encode(a_return(jid)))) for name in TEN)
    await until(lambda: dict(opened.counts) == {"ok": 10}, what="all answers on disk")
    await scene.gateway.rooms.collection.settle()
    await until(partial(_as_many, partial(devices.of, Acknowledged, *TEN), 10), what="everybody is confirmed")
    assert {jid for ack in devices.of(Acknowledged, *TEN) for jid in ack.jids} == {jid}
    assert (len(devices.published[topics.group_ack(SITE)]), devices.of(Confirm, *TEN)) == (1, [])


async def test_a_repeated_return_is_counted_once_and_confirmed_again(scene: Scene) -> None:
    await scene.join("cam")
    jid = (await scene.issue("cam")).job.jid
    for times in (1, 2):
        await scene.devices.say("cam", a_return(jid))
        await until(lambda: len(scene.devices.of(Confirm, "cam")) == times, what=f"confirmation {times}")  # noqa: B023 - called at once
    assert scene.gateway.rooms.metrics.counters["returns_repeated"] == 1
    assert scene.gateway.look("SELECT count(*) FROM outcomes") == [(1,)]


async def test_a_return_of_a_job_nobody_gave_is_refused_with_the_device_named(scene: Scene) -> None:
    await scene.join("cam", "other")
    opened = await scene.issue("other")
    await scene.devices.say("cam", a_return("9" * 20))
    await scene.devices.say("cam", a_return(opened.job.jid))
    await until(lambda: scene.refused() == {"unexpected_return": 2}, what="two refusals")
    assert scene.gateway.rooms.metrics.peers["mqtt", "unexpected_return", "cam"] == 2
    assert scene.gateway.look("SELECT * FROM outcomes") == []


async def test_a_return_after_the_verdict_is_told_and_changes_nothing(scene: Scene) -> None:
    await scene.join("cam")
    opened = await scene.issue("cam")
    jid = opened.job.jid
    scene.clock.move(limits.JOB_EXPIRY_SECONDS + limits.RETURN_WINDOW_SECONDS + 1)
    scene.gateway.rooms.delivery.kick()
    opened.look_at = 0.0
    await until(lambda: scene.gateway.rooms.open_jobs.get(jid) is None, what="the verdict")
    assert dict(opened.counts) == {"unknown": 1}
    with scene.gateway.rooms.bus.subscribe(f"salt/job/{jid}/ret/*") as heard:
        await scene.devices.say("cam", a_return(jid))
        await until(heard.queue.qsize, what="the event")
        event = heard.queue.get_nowait()
    assert (event.data["late"], event.data["recorded"], event.data["outcome"]) == (True, "unknown", "ok")
    await until(lambda: scene.devices.of(Confirm, "cam"), what="the confirmation")
    assert scene.gateway.look("SELECT outcome FROM outcomes") == [("unknown",)]


async def test_a_gateway_that_stood_still_reads_what_came_before_it_judges(scene: Scene) -> None:
    """Its process was stopped over the end of a job, and the return waits in its socket."""
    scene.gateway.rooms.delivery.stalls.stall_seconds = 0.1
    await scene.join("cam")
    opened = await scene.issue("cam")
    await scene.devices.say("cam", a_return(opened.job.jid))
    scene.clock.move(limits.JOB_EXPIRY_SECONDS + limits.RETURN_WINDOW_SECONDS + 1)
    opened.look_at = 0.0
    # Nothing of this process runs meanwhile.
    threading.Event().wait(TICK_SECONDS + 0.5)
    await until(lambda: scene.gateway.rooms.open_jobs.get(opened.job.jid) is None, what="the end of the job")
    assert dict(opened.counts) == {"ok": 1}


async def test_a_device_that_said_nothing_gets_the_job_again_and_one_that_runs_it_does_not(scene: Scene) -> None:
    await scene.join("silent", "running")
    opened = await scene.issue("silent", "running")
    jid = opened.job.jid
    devices = scene.devices
    await until(lambda: len(devices.of(Job, "silent", "running")) == 2, what="the broadcast")
    await devices.say("running", Running(jid))
    await until(lambda: opened.waiting["running"].state is State.RUNNING, what="it runs")
    scene.clock.move(limits.RESEND_FIRST_SECONDS)
    scene.gateway.rooms.delivery.kick()
    await until(lambda: len(devices.of(Job, "silent")) == 2, what="the repeat")
    assert len(devices.of(Job, "running")) == 1
    first, again = devices.of(Job, "silent")
    assert (first.bitmap is None, again.bitmap) == (False, None)
    # The same seal, so that the device knows it for a repeat.
    assert first.sealed == again.sealed
    assert again.remaining == pytest.approx(limits.JOB_EXPIRY_SECONDS - limits.RESEND_FIRST_SECONDS)


async def test_a_beat_that_names_the_job_is_as_good_as_running(scene: Scene) -> None:
    await scene.join("cam")
    opened = await scene.issue("cam")
    await scene.devices.say("cam", Beat(FIRST, [opened.job.jid]))
    await until(lambda: opened.waiting["cam"].state is State.RUNNING, what="it runs")


async def test_a_cancel_goes_to_those_that_have_the_job_and_ends_it_for_the_others(scene: Scene) -> None:
    await scene.join("here")
    await scene.join("away")
    await scene.devices.say("away", Gone(FIRST, "stopped"))
    await until(lambda: scene.gateway.rooms.registry.present() == 1, what="one has left")
    opened = await scene.issue("here", "away", late="run")
    jid = opened.job.jid
    await until(lambda: scene.devices.of(Job, "here"), what="the job")
    await scene.gateway.rooms.delivery.cancel(jid)
    await until(lambda: scene.devices.of(Cancelled, "here"), what="the cancel")
    assert {cancelled.jid for cancelled in scene.devices.of(Cancelled, "here")} == {jid}
    await until(lambda: dict(opened.counts) == {"cancelled": 1}, what="the outcome of the other")
    await scene.devices.say("here", a_return(jid, outcome="cancelled", value=None, executions=0))
    await until(lambda: scene.gateway.rooms.open_jobs.get(jid) is None, what="the close")
    assert dict(opened.counts) == {"cancelled": 2}


async def test_what_arrived_is_confirmed_before_the_link_closes(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "CONFIRM_SECONDS", 60.0)
    clock, fleet, desk = HandClock(), Fleet(), Desk()
    async with played(broker.address, fleet, clock) as devices:
        async with running_gateway(tmp_path / "state", broker.address, clock, fleet, desk, working=True) as gateway:
            scene = Scene(gateway, devices, clock)
            await scene.join("cam")
            jid = (await scene.issue("cam")).job.jid
            await devices.say("cam", a_return(jid))
            await until(lambda: gateway.rooms.open_jobs.get(jid) is None, what="the close")
            assert devices.of(Confirm, "cam") == []
        await until(lambda: devices.of(Confirm, "cam"), what="the confirmation")


async def test_a_device_that_cannot_open_a_job_gets_it_under_the_group_key_of_the_day(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    opened = await scene.issue("cam")
    await until(lambda: scene.devices.of(Job, "cam"), what="the job")
    await scene.gateway.epochs.rotate(revocation=True)
    await scene.devices.say("cam", Reseal(opened.job.jid, "stale_epoch"))
    await until(lambda: opened.waiting["cam"].state is State.QUEUED, what="it waits for another seal")
    await until(lambda: cam.groups.epoch == 2, what="the group key")
    scene.clock.move(RESEAL_SECONDS)
    scene.gateway.rooms.delivery.kick()
    await until(lambda: len(scene.devices.of(Job, "cam")) == 2, what="the job again")
    first, again = scene.devices.of(Job, "cam")
    assert (first.jid, first.sealed.header.epoch, again.sealed.header.epoch) == (again.jid, 1, 2)
    assert again.sealed.header.seq > first.sealed.header.seq


async def test_a_device_that_never_can_take_a_job_is_sealed_another_ever_more_rarely(scene: Scene) -> None:
    await scene.join("cam")
    opened = await scene.issue("cam")
    await until(lambda: scene.devices.of(Job, "cam"), what="the job")
    waits = []
    for _ in range(3):
        await scene.devices.say("cam", Reseal(opened.job.jid, "stale_seq"))
        await until(lambda: opened.waiting["cam"].state is State.QUEUED, what="it waits for another seal")
        waits.append(opened.waiting["cam"].due - scene.clock.monotonic())
        scene.clock.move(waits[-1])
        scene.gateway.rooms.delivery.kick()
        await until(lambda: opened.waiting["cam"].state is State.DELIVERED, what="the job again")
    assert waits == [RESEAL_SECONDS, 2 * RESEAL_SECONDS, 4 * RESEAL_SECONDS]
