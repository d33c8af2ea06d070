"""Sessions on a real mosquitto: heard only where and when they should be, ended by whom they belong to."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.errors import Refused
from device_agent.protocol import topics
from device_agent.protocol.messages import Beat, Certificate, EpochWanted, Gone, Hello, Reseal
from device_agent.trust.keys import SigningKey, new_private
from device_agent.trust.sessions import connection_nonce, sign_bye
from gateway.devices import sessions as sessions_module
from gateway.devices.openings import DEVICE_BURST, DEVICE_SECONDS
from gateway.devices.sessions import GRACE_SECONDS, ROLL_CALL_SECONDS, WATCH_SECONDS
from tests.peers.broker import Broker
from tests.peers.clock import HandClock
from tests.peers.fleet import SITE, party
from tests.peers.played_device import FIRST, SECOND, Camera
from tests.peers.site import Scene, opened_scene, party_of
from tests.peers.waiting import until

DAY = 86_400


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened_scene(tmp_path / "state", broker.address, HandClock()) as made:
        yield made


# --- frames --------------------------------------------------------------------------------------------------------


async def test_a_recorded_frame_is_refused(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    frame = cam.frame(Hello(SECOND, "0", {}))
    await scene.devices.publish(cam.up("f"), frame)
    await until(lambda: scene.devices.welcomed("cam", SECOND), what="the first sight")
    await scene.devices.publish(cam.up("f"), frame)
    await scene.refuses("replayed_frame", "cam")


async def test_a_frame_on_the_topic_of_another_device_is_refused(scene: Scene) -> None:
    cam, other = await scene.join("cam", "other")
    await scene.devices.publish(other.up("f"), cam.frame(Gone(FIRST, "stopped")))
    await scene.refuses("wrong_topic", "other")
    # Also when it was sealed for that topic: a session speaks on its own device's topic alone.
    await scene.devices.publish(other.up("f"), cam.frame(Gone(FIRST, "stopped"), topic=other.up("f")))
    await scene.refuses("wrong_topic", "other", times=2)
    assert scene.gateway.registry.present() == 2


async def test_forged_frames_are_refused_and_the_session_goes_on(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    frame = cam.frame(Gone(FIRST, "stopped"))
    forged = {
        "bad_frame": frame[:-1] + bytes([frame[-1] ^ 1]),
        "wrong_direction": frame[:1] + b"\2" + frame[2:],
        "malformed": frame[:20],
    }
    for reason, payload in forged.items():
        await scene.devices.publish(cam.up("f"), payload)
        await scene.refuses(reason, "cam")
    # A counter far ahead would shut out what the device says next, if it counted before the seal was checked.
    await scene.devices.publish(cam.up("f"), frame[:10] + (1000).to_bytes(8, "big") + frame[18:])
    await scene.refuses("bad_frame", "cam", times=2)
    await scene.goes_on("cam")


async def test_a_frame_of_an_unknown_session_is_answered_with_the_stations_signed_word_not_too_often(
    scene: Scene,
) -> None:
    (cam,) = await scene.join("cam")
    scene.gateway.sessions.drop([cam.did])
    for times in (1, 2):
        await scene.devices.say("cam", Beat(FIRST))
        await scene.refuses("unknown_session", "cam", times)
    await until(lambda: cam.roll_calls == 1, what="the word")
    scene.clock.move(ROLL_CALL_SECONDS)
    await scene.devices.say("cam", Beat(FIRST))
    await until(lambda: cam.roll_calls == 2, what="the word again")
    await scene.devices.join("cam", session=SECOND)


async def test_roll_calls_are_bounded_for_all_devices_together(scene: Scene) -> None:
    names = [f"cam-{number}" for number in range(4)]
    await scene.join(*names)
    scene.gateway.sessions._calls._left = 2.0
    scene.gateway.sessions.drop([scene.devices[name].did for name in names])
    for name in names:
        await scene.devices.say(name, Beat(FIRST))
        await scene.refuses("unknown_session", name)
    await until(lambda: sum(scene.devices[name].roll_calls for name in names) == 2, what="two calls")
    stranger = scene.devices.make("stranger")
    await scene.devices.publish(stranger.up("f"), bytes([1]) * 40)
    await scene.refuses("unknown_session", stranger.did)
    assert not scene.devices.published[topics.device_sok(SITE, stranger.did)]


async def test_a_beat_that_the_registry_does_not_know_is_answered_with_a_roll_call(scene: Scene) -> None:
    (cam,) = scene.add("cam")
    await scene.devices.open("cam")
    await scene.devices.say("cam", Beat(SECOND))
    await until(lambda: cam.roll_calls == 1, what="the word")


async def test_a_session_is_over_after_a_day(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    assert cam.opening is not None
    frame = cam.frame(Beat(FIRST))
    scene.clock.move(86_400.0)
    await scene.devices.publish(cam.up("f"), frame)
    await scene.refuses("session_over", "cam")
    scene.gateway.sessions.sweep()
    assert scene.gateway.sessions.find(cam.did) is None


# --- last wills ----------------------------------------------------------------------------------------------------


async def test_a_last_will_counts_only_for_the_connection_it_belongs_to_and_with_the_devices_signature(
    scene: Scene,
) -> None:
    (cam,) = await scene.join("cam")
    old = cam.bye()
    cam.reconnect()
    await scene.devices.join("cam", session=SECOND)
    await scene.devices.publish(cam.up("bye"), old)
    scene.gateway.sessions.sweep()
    thief = SigningKey(new_private())
    await scene.devices.publish(cam.up("bye"), sign_bye(thief, site=SITE, nonce=cam.nonce))
    await scene.refuses("wrong_topic", "cam")
    body = cam.bye()
    await scene.devices.publish(cam.up("bye"), body[:-1] + bytes([body[-1] ^ 1]))
    await scene.refuses("bad_signature", "cam")
    assert scene.gateway.registry.present() == 1
    await scene.devices.publish(cam.up("bye"), cam.bye())
    await until(lambda: scene.gateway.registry.present() == 0, what="its absence")
    assert scene.gateway.sessions.find(cam.did) is None


# --- two of one identity -------------------------------------------------------------------------------------------


def _copy(scene: Scene, cam: Camera) -> Camera:
    """A second machine with the flash of the first; it is not on the list of those who hear."""
    copy = Camera(cam.keys, scene.devices.fleet.fingerprint, scene.clock)
    copy.anchor, copy.prekey = cam.anchor, cam.prekey
    return copy


async def test_two_live_sessions_of_one_identity_end_and_the_device_is_put_out(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    copy = _copy(scene, cam)
    await scene.devices.publish(copy.up("ses"), copy.open())
    await until(lambda: scene.gateway.metrics.counters["sessions_opened"] == 2, what="the second session")
    scene.clock.move(GRACE_SECONDS)
    with scene.gateway.bus.subscribe("outstation/device/*") as heard:
        await scene.devices.publish(cam.up("f"), cam.frame(Beat(FIRST)))
        await scene.refuses("cloned", "cam")
        await until(heard.queue.qsize, what="the event")
        event = heard.queue.get_nowait()
    assert (event.tag, event.data["id"], event.data["did"]) == ("outstation/device/cam/cloned", "cam", cam.did)
    device = scene.gateway.desk.by_did(cam.did)
    assert device is not None
    assert device.state == "quarantined"
    assert scene.gateway.registry.present() == 0
    for number, camera in enumerate((cam, copy), start=1):
        await scene.devices.publish(camera.up("f"), camera.frame(Beat(FIRST)))
        await scene.devices.publish(camera.up("ses"), camera.open())
        await scene.refuses("quarantined", "cam", times=number)
    assert scene.devices.published[topics.device_sok(SITE, cam.did)][2:] == []
    # An operator has decided which of the two is real.
    scene.gateway.desk.change(cam.did, state="accepted")
    cam.reconnect()
    await scene.devices.join("cam", session=SECOND)


async def test_two_that_take_turns_are_seen_also_when_what_they_offer_is_not_taken(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    copy = _copy(scene, cam)
    for _ in range(int(DEVICE_BURST) - 1):
        await scene.devices.publish(cam.up("ses"), cam.open())
    openings, counters = scene.gateway.openings, scene.gateway.metrics.counters
    judged = ("sessions_opened", "openings_superseded")
    await until(lambda: sum(counters[each] for each in judged) == DEVICE_BURST, what="all of them")
    await until(lambda: not openings._waiting and not openings._judging, what="what was taken to be judged")
    # Each names its own last opening, and none of these is taken any more.
    await scene.devices.publish(copy.up("ses"), copy.open())
    await scene.refuses("too_many_sessions", "cam")
    assert cam.opening is not None
    cam.nonce = connection_nonce(cam.opening.session.sid, secrets.token_bytes(8))
    await scene.devices.publish(cam.up("ses"), cam.open())
    await scene.refuses("too_many_sessions", "cam", times=2)
    scene.clock.move(DEVICE_SECONDS)
    await scene.devices.publish(cam.up("ses"), cam.open())
    await scene.refuses("cloned", "cam")


async def test_one_that_flaps_is_no_clone_however_much_of_what_it_offers_is_not_taken(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    for _ in range(3 * int(DEVICE_BURST)):
        assert cam.opening is not None
        cam.nonce = connection_nonce(cam.opening.session.sid, secrets.token_bytes(8))
        await scene.devices.publish(cam.up("ses"), cam.open())
    await until(lambda: scene.refused().get("too_many_sessions", 0) > DEVICE_BURST, what="refusals")
    scene.clock.move(DEVICE_SECONDS)
    opened = scene.gateway.metrics.counters["sessions_opened"]
    assert cam.opening is not None
    cam.nonce = connection_nonce(cam.opening.session.sid, secrets.token_bytes(8))
    await scene.devices.publish(cam.up("ses"), cam.open())
    await until(lambda: scene.gateway.metrics.counters["sessions_opened"] > opened, what="another session")
    assert set(scene.refused()) == {"too_many_sessions"}


async def test_a_device_that_connects_again_is_no_clone(scene: Scene) -> None:
    """Even when its last words come late, and when it never said goodbye."""
    (cam,) = await scene.join("cam")
    late = cam.frame(Beat(FIRST))
    cam.reconnect()
    await scene.devices.join("cam", session=SECOND)
    scene.clock.move(GRACE_SECONDS / 2)
    await scene.devices.publish(cam.up("f"), late)
    await scene.goes_on("cam")
    scene.clock.move(WATCH_SECONDS + 1)
    scene.gateway.sessions.sweep()
    await scene.goes_on("cam")
    assert scene.refused() == {}
    assert len(scene.gateway.sessions._by_sid) == 1


async def test_another_session_on_the_same_connection_is_no_clone(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    before = cam.opening
    await scene.devices.open("cam")
    after, cam.opening = cam.opening, before
    scene.clock.move(GRACE_SECONDS)
    await scene.devices.say("cam", Beat(FIRST))
    await scene.refuses("unknown_session", "cam")
    cam.opening = after
    await scene.goes_on("cam")


async def test_a_clone_is_put_out_as_soon_as_the_disk_can(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "RETRY_SECONDS", 0.01)
    (cam,) = await scene.join("cam")
    copy = _copy(scene, cam)
    await scene.devices.publish(copy.up("ses"), copy.open())
    await until(lambda: scene.gateway.metrics.counters["sessions_opened"] == 2, what="the second session")
    scene.clock.move(GRACE_SECONDS)
    works, tries = scene.gateway.sessions._quarantine, []

    async def fails(did: str, why: str) -> None:
        tries.append(did)
        raise Refused("disk_full", why)

    scene.gateway.sessions._quarantine = fails
    await scene.devices.publish(cam.up("f"), cam.frame(Beat(FIRST)))
    await until(lambda: len(tries) > 1, what="two tries")
    await scene.devices.publish(copy.up("ses"), copy.open())
    await scene.refuses("quarantined", "cam")
    scene.gateway.sessions._quarantine = works
    await until(lambda: scene.gateway.desk.devices[cam.did].state == "quarantined", what="the decision")


# --- what a session carries beside jobs ------------------------------------------------------------------------------


async def test_a_certificate_that_another_site_key_signed_is_replaced_over_the_session(scene: Scene) -> None:
    before = party("the gateway before")
    cam = scene.devices.make("cam", issuer=before)
    scene.gateway.desk.enrol(cam.keys)
    await scene.devices.join("cam")
    await until(lambda: scene.devices.of(Certificate, "cam"), what="the certificate")
    assert (
        cam.anchor.open_device_certificate(cam.certificate, scene.clock.wall()).issuer
        == scene.gateway.authority.signing.kid
    )


async def test_a_certificate_is_renewed_in_the_last_third_of_its_life_and_not_before(scene: Scene) -> None:
    for name in ("young", "old"):
        camera = scene.devices.make(name, issuer=party_of(scene.gateway), expires=int(scene.clock.wall()) + 9 * DAY)
        scene.gateway.desk.enrol(camera.keys)
    scene.clock.move(6 * DAY - 10)
    await scene.gateway.prekeys.renew()
    young = scene.devices["young"]
    await until(lambda: young.prekey is not None and young.prekey.issued == int(scene.clock.wall()), what="a prekey")
    await scene.devices.join("young")
    scene.clock.move(20)
    await scene.devices.join("old")
    await until(lambda: scene.devices.of(Certificate, "old"), what="the certificate")
    assert scene.devices.of(Certificate, "young") == []
    assert scene.gateway.metrics.counters["certificates_renewed"] == 1


async def test_a_job_that_a_device_cannot_open_is_asked_for_anew(scene: Scene) -> None:
    asked = scene.gateway.resealed
    await scene.join("cam")
    await scene.devices.say("cam", Reseal("1" * 20, "stale_epoch"))
    await until(lambda: asked == [("cam", "1" * 20, "stale_epoch")], what="the question")


async def test_a_device_that_lacks_the_group_key_asks_for_it_and_is_answered_not_too_often(scene: Scene) -> None:
    (cam,) = await scene.join("cam")
    await until(lambda: cam.groups.epoch == 1, what="the key that came with the session")
    topic = topics.device_ep(SITE, cam.did)
    scene.clock.move(10.0)
    await scene.devices.say("cam", EpochWanted(), EpochWanted())
    await until(lambda: scene.gateway.metrics.counters["epoch_keys_asked_again"] == 1, what="the second question")
    await until(lambda: len(scene.devices.published[topic]) == 2, what="the answer")


async def test_those_who_knock_are_brought_to_the_enrollment_and_answered(scene: Scene) -> None:
    stranger = scene.devices.make("stranger")
    await scene.devices.publish(topics.enrol_request(SITE), b"a request")
    await until(lambda: scene.gateway.desk.requests == [b"a request"], what="the request")
    assert scene.gateway.desk.respond is not None
    await scene.gateway.desk.respond(stranger.did, b"an answer")
    await until(lambda: scene.devices.published[topics.enrol_response(SITE, stranger.did)], what="the answer")
