"""What devices believe and share, on a real mosquitto: the retained message, group keys, and who is out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.errors import Refused, StationFailed
from device_agent.mqtt import MqttLink
from device_agent.protocol import topics
from device_agent.protocol.messages import Beat
from device_agent.trust import hpke
from device_agent.trust.epochs import PREVIOUS_SECONDS
from device_agent.trust.notices import LISTED, read_bundle
from device_agent.trust.revocations import read_revocations, sign_revocations
from gateway.devices import revocation as revocation_module
from gateway.devices.epochs import ROTATE_SECONDS, master_info
from gateway.devices.prekeys import RENEW_SECONDS
from gateway.store.writer import StoreFailed, Writer
from tests.peers.broker import Broker
from tests.peers.clock import HandClock
from tests.peers.desk import Desk
from tests.peers.fleet import SITE, Fleet, party
from tests.peers.played_device import FIRST, SECOND, Camera, played
from tests.peers.site import Scene, opened_scene, running_gateway
from tests.peers.waiting import until


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened_scene(tmp_path / "state", broker.address, HandClock()) as made:
        yield made


def knows(camera: Camera, epoch: int, now: float) -> bool:
    """Whether a job sealed under this epoch is one that the device can open."""
    try:
        return bool(camera.groups.key(epoch, now))
    except Refused:
        return False


# --- the retained message ------------------------------------------------------------------------------------------


async def test_whoever_subscribes_later_hears_whom_to_believe(scene: Scene, broker: Broker) -> None:
    heard: list[bytes] = []
    await scene.devices.trusted([])

    class Enough(Exception):
        pass

    def hear(topic: str, payload: bytes) -> None:
        heard.append(payload)
        raise Enough

    async def nothing() -> None:
        return

    late = MqttLink(
        broker.address,
        "late",
        subscriptions=[topics.trust(SITE)],
        on_message=hear,
        on_connected=nothing,
        on_lost=lambda: None,
        count=lambda _: None,
    )
    with pytest.raises(Enough):
        await late.run()
    bundle = read_bundle(heard[0])
    fleet, authority = scene.devices.fleet, scene.gateway.authority
    assert bundle.root_lists == fleet.chain
    assert authority.certificate is not None
    assert (bundle.site_certificates, bundle.prekey) == ([authority.certificate.body], scene.gateway.prekeys.body)
    assert bundle.revocations == []


async def test_the_retained_message_follows_root_lists_prekeys_and_revocations(scene: Scene) -> None:
    (cam,) = scene.add("cam")
    await scene.devices.trusted(["cam"])
    fleet = scene.devices.fleet
    fleet.next_root(revoked=frozenset({b"somebody"}))
    await scene.gateway.authority.install(root_lists=fleet.chain)
    await until(lambda: cam.anchor.root is not None and cam.anchor.root.version == 2, what="the root list")
    first = cam.prekey
    scene.clock.move(RENEW_SECONDS)
    await scene.gateway.prekeys.renew()
    await until(lambda: cam.prekey != first, what="the prekey")
    gone = scene.devices.make("gone")
    scene.gateway.desk.enrol(gone.keys)
    await scene.gateway.revocation.revoke([gone.did])
    await until(lambda: cam.anchor.device_revoked(gone.keys.kid, SITE), what="the list")


async def test_a_broker_that_forgot_everything_is_told_again_and_devices_open_anew(
    scene: Scene, broker: Broker
) -> None:
    (cam,) = await scene.join("cam")
    before = cam.prekey
    await broker.kill()
    await until(lambda: not scene.gateway.downlink.status()["connected"], what="the loss")
    await broker.start()
    await until(lambda: cam.prekey != before, what="the message after the loss")
    assert before is not None
    assert cam.prekey is not None
    assert (cam.prekey.kem, cam.prekey.instance == before.instance) == (before.kem, False)
    await until(lambda: scene.gateway.downlink.status()["connected"], what="the connection")
    cam.reconnect()
    await scene.devices.join("cam", session=SECOND)


async def test_a_gateway_without_a_fleet_says_nothing_and_speaks_as_soon_as_it_has_one(
    broker: Broker, tmp_path: Path
) -> None:
    clock, fleet, desk = HandClock(), Fleet(), Desk()
    async with (
        played(broker.address, fleet, clock) as devices,
        running_gateway(tmp_path / "state", broker.address, clock, fleet, desk, joined=False) as gateway,
    ):
        await until(lambda: gateway.downlink.status()["connected"], what="the connection")
        scene = Scene(gateway, devices, clock)
        assert devices.published[topics.trust(SITE)] == []
        await scene.certified()
        await scene.join("cam")


# --- prekeys -------------------------------------------------------------------------------------------------------


async def test_a_prekey_lives_two_days_and_nothing_of_it_is_left_in_the_file(broker: Broker, tmp_path: Path) -> None:
    clock, fleet, desk, state = HandClock(), Fleet(), Desk(), tmp_path / "state"
    async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
        ((private, name),) = gateway.look("SELECT private, id FROM prekeys")
        clock.move(RENEW_SECONDS)
        await gateway.prekeys.renew()
        assert gateway.look("SELECT count(*) FROM prekeys") == [(2,)]
        assert gateway.prekeys.find(name) is not None
        path = gateway.path
    assert private in path.read_bytes()
    async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
        assert gateway.prekeys.find(name) is not None
        clock.move(RENEW_SECONDS)
        # Also before the wipe has had its turn.
        assert gateway.prekeys.find(name) is None
        await gateway.prekeys.renew()
    assert private not in path.read_bytes()


# --- group keys ----------------------------------------------------------------------------------------------------


async def test_another_group_key_reaches_those_who_are_here_and_those_who_come_later(scene: Scene) -> None:
    (here,) = await scene.join("here")
    (later,) = scene.add("later")
    scene.gateway.desk.enrol(scene.devices.make("never-let-in").keys, state="pending")
    await until(lambda: here.groups.epoch == 1, what="the first key")
    assert await scene.gateway.epochs.rotate() == 2
    await until(lambda: here.groups.epoch == 2, what="the second key")
    assert here.groups.newest == scene.gateway.epochs.key
    await scene.devices.join("later")
    await until(lambda: later.groups.epoch == 2, what="the key of the day")
    told = {topic for topic, bodies in scene.devices.published.items() if topic.endswith("/ep") and bodies}
    assert told == {topics.device_ep(SITE, here.did), topics.device_ep(SITE, later.did)}
    # What is under way under the one before is still opened, for ten minutes.
    assert knows(here, 1, scene.clock.monotonic())
    assert not knows(here, 1, scene.clock.monotonic() + PREVIOUS_SECONDS)
    assert scene.gateway.epochs.key_of(1) is not None


async def test_a_device_that_knows_the_newest_group_key_is_not_told_again(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    await until(lambda: cam.groups.epoch == 1, what="the key")
    cam.reconnect()
    await scene.devices.join("cam", session=SECOND)
    await scene.gateway.epochs.rotate()
    await until(lambda: cam.groups.epoch == 2, what="the next key")
    assert len(scene.devices.published[topics.device_ep(SITE, cam.did)]) == 2


async def test_the_group_key_changes_after_thirty_days_and_older_ones_leave_the_file(
    broker: Broker, tmp_path: Path
) -> None:
    clock, fleet, desk, state = HandClock(), Fleet(), Desk(), tmp_path / "state"
    async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
        keys = [gateway.epochs.key]
        clock.move(ROTATE_SECONDS - 1)
        await gateway.epochs.look()
        assert gateway.epochs.epoch == 1
        clock.move(1)
        await gateway.epochs.look()
        keys.append(gateway.epochs.key)
        assert (gateway.epochs.epoch, gateway.epochs.key_of(1)) == (2, keys[0])
        path = gateway.path
    async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
        assert (gateway.epochs.epoch, gateway.epochs.key, gateway.epochs.key_of(1)) == (2, keys[1], keys[0])
        await gateway.epochs.rotate()
        assert gateway.epochs.key_of(1) is None
        assert gateway.epochs.group_key("elsewhere") is None
    body = path.read_bytes()
    assert [key in body for key in keys] == [False, True]


async def test_a_key_is_counted_from_what_a_master_knows_of_us_unless_that_is_no_count(scene: Scene) -> None:
    cam = (await scene.join("cam-1"))[0]
    epochs = scene.gateway.epochs
    before = epochs.key
    await epochs.go_above(epochs.epoch)
    await epochs.go_above(2**32 - 1)
    assert (epochs.epoch, epochs.key) == (1, before)
    await epochs.go_above(41)
    assert epochs.epoch == 42
    await until(lambda: cam.groups.epoch == 42, what="the key that is counted from there")
    assert cam.groups.newest == epochs.key != before


async def test_each_master_of_the_root_list_can_open_the_group_key_and_nobody_else(scene: Scene) -> None:
    epochs, fleet = scene.gateway.epochs, scene.devices.fleet
    epoch, sealed = epochs.for_masters()
    info = master_info(SITE, scene.gateway.authority.signing.kid, epoch)
    by_kid = dict(sealed)
    assert {hpke.open_sealed(master.kem, info, by_kid[master.kid]) for master in (fleet.a, fleet.b)} == {epochs.key}
    with pytest.raises(Refused, match="not_sealed_to_us"):
        hpke.open_sealed(fleet.a.kem, info, by_kid[fleet.b.kid])


# --- who is out ----------------------------------------------------------------------------------------------------


async def test_a_revoked_device_loses_its_session_its_place_at_the_broker_and_the_group_key(scene: Scene) -> None:
    good, bad = await scene.join("good", "bad")
    await until(lambda: good.groups.epoch == bad.groups.epoch == 1, what="the first key")
    desk, gateway = scene.gateway.desk, scene.gateway
    await gateway.revocation.revoke([bad.did], [("INSERT INTO station VALUES (?, ?)", [("beside", "it")])])
    assert gateway.look("SELECT value FROM station WHERE key = 'beside'") == [("it",)]
    assert desk.users_removed == [bad.did]
    assert gateway.registry.present() == 1
    await until(lambda: good.groups.epoch == 2, what="the key without the revoked one")
    # At once, without the ten minutes.
    assert not knows(good, 1, scene.clock.monotonic())
    for reason, topic, payload in (
        ("unknown_session", bad.up("f"), bad.frame(Beat(FIRST))),
        ("revoked", bad.up("ses"), bad.open()),
    ):
        await scene.devices.publish(topic, payload)
        await until(lambda: gateway.metrics.peers["mqtt", reason, "bad"] == 1, what=reason)  # noqa: B023 - called at once
    await until(lambda: good.anchor.device_revoked(bad.keys.kid, SITE), what="the list")
    assert bad.groups.epoch == 1
    assert len(scene.devices.published[topics.device_ep(SITE, bad.did)]) == 1
    assert bad.roll_calls == 0
    await scene.devices.say("good", Beat(FIRST))
    assert gateway.metrics.peers["mqtt", "unknown_session", "good"] == 0


async def test_a_later_key_without_a_revocation_does_not_bring_the_one_before_it_back(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    await until(lambda: cam.groups.epoch == 1, what="the first key")
    scene.gateway.sessions.drop([cam.did])
    await scene.gateway.epochs.rotate(revocation=True)
    await scene.gateway.epochs.rotate()
    cam.reconnect()
    await scene.devices.join("cam", session=SECOND)
    await until(lambda: cam.groups.epoch == 3, what="the newest key")
    assert not knows(cam, 1, scene.clock.monotonic())


async def test_the_own_list_only_grows_and_goes_above_what_a_device_has_seen(scene: Scene) -> None:
    names = ["one", "two"]
    one, two = scene.add(*names)
    revocation, own = scene.gateway.revocation, scene.gateway.authority.signing.kid
    await revocation.revoke([one.did])
    await revocation.revoke([one.did])
    assert revocation.version == 1
    (cam,) = scene.add("cam")
    await scene.devices.open("cam", version=41)
    assert cam.ok is not None
    assert cam.ok.version == 1
    await revocation.revoke([two.did])
    assert revocation.version == 42
    (body,) = scene.gateway.authority.anchor.revocation_lists()
    read = read_revocations(body)
    assert (read.kid, read.version, read.site, read.kids) == (
        own,
        42,
        SITE,
        frozenset({one.keys.kid, two.keys.kid}),
    )


async def test_what_a_master_revokes_is_out_here_too(scene: Scene) -> None:
    good, bad = await scene.join("good", "bad")
    await until(lambda: good.groups.epoch == 1, what="the first key")
    fleet = scene.devices.fleet
    body = sign_revocations(fleet.a.key, version=1, kids=[bad.keys.kid], issued=int(scene.clock.wall()))
    await scene.gateway.authority.install(revocations=[body])
    await until(lambda: good.groups.epoch == 2, what="the key without the revoked one")
    await until(lambda: scene.gateway.desk.devices[bad.did].state == "revoked", what="its state")
    assert scene.gateway.desk.users_removed == [bad.did]
    assert scene.gateway.sessions.find(bad.did) is None
    assert not knows(good, 1, scene.clock.monotonic())
    assert body in read_bundle(scene.devices.published[topics.trust(SITE)][-1]).revocations


async def test_a_revocation_that_was_cut_short_is_carried_out_at_the_next_start(broker: Broker, tmp_path: Path) -> None:
    clock, fleet, desk, state = HandClock(), Fleet(), Desk(), tmp_path / "state"
    async with played(broker.address, fleet, clock) as devices:
        async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
            bad, _ = Scene(gateway, devices, clock).add("bad", "good")
            await devices.join("good")
        clock.move(60.0)
        statement = "INSERT INTO revoked_devices VALUES (?, 1, ?)"
        async with Writer(state / "station.sqlite") as writer:
            await writer.commit([(statement, [(bad.keys.kid, clock.wall())])])
        clock.move(60.0)
        async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
            await until(lambda: gateway.epochs.epoch == 2, what="the next key")
            assert gateway.authority.anchor.device_revoked(bad.keys.kid, SITE)
            await until(lambda: desk.devices[bad.did].state == "revoked", what="its state")


async def test_a_store_from_a_backup_takes_the_newer_list_from_the_stations_own_files(
    broker: Broker, tmp_path: Path
) -> None:
    clock, fleet, desk, state = HandClock(), Fleet(), Desk(), tmp_path / "state"
    async with played(broker.address, fleet, clock) as devices:
        async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
            one, two = Scene(gateway, devices, clock).add("one", "two")
            await gateway.revocation.revoke([one.did])
        (state / "station.sqlite").unlink()
        async with running_gateway(state, broker.address, clock, fleet, desk) as gateway:
            await gateway.revocation.revoke([two.did])
            (body,) = gateway.authority.anchor.revocation_lists()
            read = read_revocations(body)
            assert (read.version, read.kids) == (2, frozenset({one.keys.kid, two.keys.kid}))


async def test_what_follows_a_revocation_is_tried_again_when_it_fails(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocation_module, "RETRY_SECONDS", 0.01)
    good, bad = await scene.join("good", "bad")
    await until(lambda: good.groups.epoch == 1, what="the first key")
    scene.clock.move(1.0)
    works, tries = scene.gateway.epochs.rotate, []

    async def fails(*, revocation: bool = False) -> int:
        tries.append(revocation)
        if len(tries) > 2:
            return await works(revocation=revocation)
        raise StoreFailed("the disk is full")

    monkeypatch.setattr(scene.gateway.epochs, "rotate", fails)
    await scene.gateway.revocation.revoke([bad.did])
    scene.gateway.desk.change(bad.did, state="revoked")
    await until(lambda: good.groups.epoch == 2, what="the key without the revoked one")
    assert tries == [True, True, True]
    await until(lambda: scene.gateway.desk.users_removed == [bad.did], what="its place at the broker")


async def test_nothing_has_happened_when_a_revocation_cannot_be_written(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    with pytest.raises(StationFailed):
        await scene.gateway.revocation.revoke([cam.did], [("INSERT INTO no_such_table VALUES (?)", [(1,)])])
    assert scene.gateway.revocation.version == 0
    assert scene.gateway.sessions.find(cam.did) is not None
    assert scene.gateway.authority.anchor.revocation_lists() == []


async def test_devices_are_told_what_concerns_them_however_many_root_lists_and_sites_there_were(scene: Scene) -> None:
    authority, fleet = scene.gateway.authority, scene.devices.fleet
    (cam,) = scene.add("cam")
    await scene.devices.trusted(["cam"])
    for number in range(LISTED):
        fleet.next_root(revoked=frozenset({number.to_bytes(8, "big")}))
    below = party("porto")
    authority.anchor.take_site_certificate(fleet.certify_site(below), authority.now())
    porto = fleet.revoke(below, b"kid of p", site="porto")
    refused = dict(cam.refused)
    await authority.install(root_lists=fleet.chain, revocations=[porto])
    await until(lambda: cam.anchor.root is not None and cam.anchor.root.version == LISTED + 1, what="the root lists")
    assert porto in authority.anchor.revocation_lists()
    assert dict(cam.refused) == refused
