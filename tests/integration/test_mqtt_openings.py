"""Openings of sessions on a real mosquitto: taken once, from whom they should be, and on disk before the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.protocol.messages import Beat
from device_agent.trust.sessions import PREKEY_SECONDS
from gateway.devices import openings as openings_module
from gateway.devices.openings import DEVICE_BURST
from tests.peers.broker import Broker
from tests.peers.clock import HandClock
from tests.peers.desk import Desk
from tests.peers.fleet import Fleet
from tests.peers.played_device import FIRST, SECOND, played
from tests.peers.site import Scene, opened_scene, running_gateway
from tests.peers.waiting import until

DAY = 86_400


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened_scene(tmp_path / "state", broker.address, HandClock()) as made:
        yield made


async def test_the_station_says_its_time_its_versions_and_the_place_of_the_device(scene: Scene) -> None:
    scene.add("first", "cam")
    await scene.devices.open("cam")
    ok = scene.devices["cam"].ok
    assert ok is not None
    assert (ok.issued, ok.epoch, ok.version, ok.index) == (int(scene.clock.wall()), 1, 0, 1)


async def test_an_opening_is_on_disk_before_the_device_is_told(scene: Scene) -> None:
    (cam,) = scene.add("cam")
    await scene.devices.open("cam")
    assert cam.opening is not None
    rows = scene.gateway.look("SELECT prekey, length(digest) FROM openings")
    assert cam.prekey is not None
    assert rows == [(cam.prekey.id, 32)]


async def test_nobody_has_a_session_while_the_disk_is_full(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings_module, "RETRY_SECONDS", 0.01)
    (cam,) = scene.add("cam")
    await scene.devices.trusted(["cam"])
    hold = "CREATE TRIGGER hold BEFORE INSERT ON openings BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    await scene.gateway.writer.commit([(hold, [()])])
    await scene.devices.publish(cam.up("ses"), cam.open())
    await until(lambda: scene.gateway.metrics.counters["openings_not_taken"], what="the failure")
    assert cam.ok is None
    assert scene.gateway.sessions.find(cam.did) is None
    await scene.gateway.writer.commit([("DROP TRIGGER hold", [()])])
    await scene.devices.join("cam")


async def test_a_recorded_opening_is_refused(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    assert cam.opening is not None
    await scene.devices.publish(cam.up("ses"), cam.opening.body)
    await scene.refuses("replayed", "cam")
    await scene.goes_on("cam")


async def test_a_recorded_opening_is_refused_by_a_station_that_started_again(broker: Broker, tmp_path: Path) -> None:
    clock, fleet, desk, state = HandClock(), Fleet(), Desk(), tmp_path / "state"
    async with played(broker.address, fleet, clock) as devices:
        async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
            scene = Scene(gateway, devices, clock)
            (cam,) = await scene.join("cam")
            assert cam.opening is not None
            recorded = {"ses": cam.opening.body, "f": cam.frame(Beat(FIRST))}
            first = cam.prekey
        clock.move(3600.0)
        async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
            scene = Scene(gateway, devices, clock)
            await until(lambda: cam.prekey != first, what="the retained message of the new start")
            assert first is not None
            assert cam.prekey is not None
            assert (cam.prekey.kem, cam.prekey.instance == first.instance) == (first.kem, False)
            await devices.publish(cam.up("ses"), recorded["ses"])
            await scene.refuses("replayed", "cam")
            await devices.publish(cam.up("f"), recorded["f"])
            await scene.refuses("unknown_session", "cam")
            cam.reconnect()
            await devices.join("cam", session=SECOND)


async def test_a_store_that_is_an_older_one_goes_above_the_group_key_that_a_device_knows(scene: Scene) -> None:
    (cam,) = scene.add("cam")
    await scene.devices.open("cam", epoch=7)
    assert cam.ok is not None
    assert (cam.ok.epoch, scene.gateway.epochs.epoch) == (8, 8)
    await until(lambda: cam.groups.epoch == 8, what="the key above what it knew")


async def test_one_device_cannot_drive_the_count_of_group_keys(scene: Scene) -> None:
    cam, other = scene.add("cam", "other")
    await scene.devices.open("cam", epoch=2**32 - 1)
    assert scene.gateway.epochs.epoch == 1
    scene.clock.move(3600.0)
    await scene.devices.open("cam", epoch=7)
    await scene.devices.open("other", epoch=70)
    assert scene.gateway.epochs.epoch == 8
    assert cam.ok is not None
    assert other.ok is not None


async def test_openings_that_are_not_the_devices_own_are_refused(scene: Scene) -> None:
    cam, other = scene.add("cam", "other")
    await scene.devices.trusted(["cam", "other"])
    stranger = scene.devices.make("stranger")
    await scene.devices.trusted(["stranger"])
    await scene.devices.publish(cam.up("ses"), other.open())
    await scene.refuses("wrong_topic", "cam")
    await scene.devices.publish(stranger.up("ses"), stranger.open())
    await scene.refuses("unknown_device", stranger.did)
    body = cam.open()
    await scene.devices.publish(cam.up("ses"), body[:-1] + bytes([body[-1] ^ 1]))
    await scene.refuses("bad_signature", "cam")
    await scene.devices.publish(cam.up("ses"), bytes(openings_module.OPENING_BYTES + 1))
    await scene.refuses("oversized", "cam")
    assert len(scene.gateway.sessions) == 0
    assert scene.gateway.look("SELECT * FROM openings") == []
    await scene.devices.join("cam")


async def test_an_opening_for_a_prekey_that_was_wiped_is_refused(scene: Scene) -> None:
    (cam,) = scene.add("cam")
    await scene.devices.open("cam")
    late = cam.open()
    first = cam.prekey
    scene.clock.move(PREKEY_SECONDS)
    await scene.gateway.prekeys.renew()
    await until(lambda: cam.prekey != first, what="the next prekey")
    await scene.devices.publish(cam.up("ses"), late)
    await scene.refuses("unknown_prekey", "cam")
    assert scene.gateway.look("SELECT * FROM openings") == []
    await scene.devices.join("cam")


async def test_a_device_opens_only_so_many_sessions(scene: Scene) -> None:
    (cam,) = scene.add("cam")
    for _ in range(int(DEVICE_BURST)):
        await scene.devices.open("cam")
    await scene.devices.publish(cam.up("ses"), cam.open())
    await scene.refuses("too_many_sessions", "cam")
    scene.clock.move(openings_module.DEVICE_SECONDS)
    await scene.devices.open("cam")


@pytest.mark.parametrize("state", ["pending", "rejected", "revoked", "quarantined"])
async def test_only_an_accepted_device_has_a_session(state: str, scene: Scene) -> None:
    (cam,) = scene.add("cam")
    await scene.devices.trusted(["cam"])
    scene.gateway.desk.change(cam.did, state=state)
    await scene.devices.publish(cam.up("ses"), cam.open())
    await scene.refuses(state, "cam")


async def test_what_a_device_has_seen_of_this_stations_numbers_raises_them(scene: Scene) -> None:
    (cam,) = scene.add("cam")
    kid, ahead = scene.gateway.authority.signing.kid, int(scene.clock.wall() * 1000) + 5000
    cam.marks = [(bytes(8), ahead * 2), (kid, ahead)]
    await scene.devices.open("cam")
    assert scene.gateway.raised == [ahead]
    # A mark far in the future would push the numbers out of every other device's reach.
    cam.marks = [(kid, ahead * 2)]
    await scene.devices.open("cam")
    assert scene.gateway.raised == [ahead, 0]
