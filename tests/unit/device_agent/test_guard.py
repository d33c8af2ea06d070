"""The guard of a device: its connection, its session, and whom it takes words from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.heard import Cancelled, SessionLost
from device_agent.protocol import bitmap, limits, topics
from device_agent.protocol.messages import Beat, Confirm, EpochWanted, Welcome, encode
from tests.peers.fleet import Fleet, signing_key
from tests.peers.guarded import Guarded
from tests.peers.trusted_site import TrustedSite

JID = f"{1:020d}"
DAY = 86_400


@pytest.fixture
def device() -> Guarded:
    return Guarded()


def refusal(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.reason


# --- the connection and the session ----------------------------------------------------------------------------------


def test_a_session_is_opened_when_the_station_has_shown_who_it_is(device: Guarded) -> None:
    device.guard.begin()
    device.guard.connected()
    device.tick(100)
    assert device.taken() == []
    device.tell_trust(device.site.bundle())
    device.accept(device.opening())
    assert device.guard.session
    device.guard.send(encode(Beat(device.guard.session)))
    assert device.heard() == [Beat(device.guard.session)]


def test_what_is_retained_may_come_before_the_subscription_is_granted(device: Guarded) -> None:
    device.guard.begin()
    device.tell_trust(device.site.bundle())
    assert device.taken() == []
    device.guard.connected()
    device.accept(device.opening())


def test_the_last_will_names_the_openings_of_its_connection(device: Guarded) -> None:
    topic, will = device.guard.begin()
    assert topic == topics.device_up("lisbon", device.did, "bye")
    did, nonce = device.site.last_words(will)
    device.guard.connected()
    device.tell_trust(device.site.bundle())
    device.tick(30)
    for _, body in device.taken():
        device.site.opened(body)
    openings = device.site.openings[did]
    assert len(openings) > 1
    assert {opening.nonce for opening in openings} == {nonce}
    assert device.site.last_words(device.guard.begin()[1]) != (did, nonce)


def test_an_opening_without_an_answer_is_made_anew_ever_more_slowly(device: Guarded) -> None:
    device.connect()
    times = []
    for second in range(1, 600):
        device.tick(1)
        if device.said:
            # The site takes no opening twice: each must be another one.
            device.site.opened(device.opening())
            times.append(second)
    assert times[0] <= 5
    assert 10 <= len(times) <= 60
    assert times[-1] - times[-2] > 5


def test_an_opening_says_what_the_device_knows(device: Guarded) -> None:
    marks = {bytes([number]) * 8: number for number in range(20)}
    device.another_guard(marks)
    device.site.opened(device.connect())
    opening = device.site.openings[device.did][-1]
    assert opening.epoch == 1
    assert opening.version == 0
    # As many as an opening takes, and those that matter most.
    assert dict(opening.marks) == {bytes([number]) * 8: number for number in range(4, 20)}


def test_a_device_without_a_session_says_nothing(device: Guarded) -> None:
    device.guard.send(encode(EpochWanted()))
    device.live()
    device.guard.lost()
    device.guard.send(encode(EpochWanted()))
    assert device.taken() == []
    assert device.counters.dropped == 2


def test_a_session_is_renewed_before_its_day_is_over_and_serves_until_then(device: Guarded) -> None:
    device.live()
    before = device.guard.session
    device.tick(DAY * 0.79)
    assert device.taken() == []
    device.tick(DAY * 0.17)
    openings = [body for topic, body in device.taken() if topic.endswith("ses")]
    assert openings
    assert device.guard.session == before
    device.accept(openings[-1])
    assert device.guard.session != before


def test_another_start_of_the_station_opens_another_session_within_a_second(device: Guarded) -> None:
    device.live()
    device.site.restart()
    assert device.tell_trust(device.site.bundle()) == SessionLost()
    assert device.guard.session == ""
    assert device.taken() == []
    device.clock.move(1.0)
    device.guard.tick(device.clock.monotonic())
    device.accept(device.opening())


def test_a_new_prekey_of_the_same_start_leaves_the_session_alone(device: Guarded) -> None:
    device.live()
    before, instance = device.guard.session, device.site.instance
    sessions = dict(device.site.sessions)
    device.site.restart()
    device.site.instance = instance
    device.site.sessions.update(sessions)
    assert device.tell_trust(device.site.bundle()) is None
    device.tick(5)
    assert device.taken() == []
    assert device.guard.session == before


def test_a_session_that_the_station_does_not_know_is_followed_by_another(device: Guarded) -> None:
    device.live()
    first = device.site.roll_call(device.did)
    assert device.tell_session(first) == SessionLost()
    device.tick(1)
    device.accept(device.opening())
    # Recorded, it says nothing of the session that is open now.
    assert refusal(lambda: device.tell_session(first)) == "unknown_session"
    assert device.guard.session


def test_the_word_on_a_session_must_be_the_sites_own_and_for_this_connection(device: Guarded) -> None:
    opening = device.connect()
    _, recorded = device.site.opened(opening)
    latest = device.site.openings[device.did][-1]
    for key in (device.site.fleet.a.key, signing_key("nobody")):
        assert refusal(device.tell_session, device.site.word(latest, key=key)) == "unknown_issuer"
    device.guard.lost()
    device.connect()
    assert refusal(lambda: device.tell_session(recorded)) == "wrong_nonce"
    assert device.guard.session == ""


def test_a_frame_counts_once_on_its_topic_and_in_its_session(device: Guarded) -> None:
    device.live()
    frame = device.site.frame(device.did, Welcome(device.guard.session, 0))
    assert device.tell_me(frame) == Welcome(device.guard.session, 0)
    assert refusal(lambda: device.tell_me(frame)) == "replayed_frame"
    other = device.site.frame(device.did, Confirm([JID]))
    changed = other[:-1] + bytes([other[-1] ^ 1])
    assert refusal(lambda: device.tell_me(changed)) == "bad_frame"
    device.guard.lost()
    assert refusal(lambda: device.tell_me(other)) == "unknown_session"
    device.live()
    assert refusal(lambda: device.tell_me(other)) == "unknown_session"


def test_words_on_topics_that_are_not_the_devices_are_refused(device: Guarded) -> None:
    device.live()
    for topic in ("", topics.device_job("lisbon", "a" * 26), topics.group_job("porto"), "os/lisbon/d/+/job"):
        assert refusal(device.tell, topic, b"") == "bad_topic"


# --- time ------------------------------------------------------------------------------------------------------------


def test_the_site_tells_the_time_and_the_floor_stays(device: Guarded) -> None:
    floor = device.identity.floor.value
    opening = device.connect()
    device.site.opened(opening)
    device.tell_session(device.site.word(device.site.openings[device.did][-1], issued=device.site.now() + 5 * DAY))
    assert device.identity.floor.now(device.clock.monotonic()) == device.site.now() + 5 * DAY
    assert device.identity.floor.value == floor


@pytest.mark.parametrize("years", [-30, 30])
def test_a_time_outside_the_sites_own_certificate_is_a_lie(device: Guarded, years: int) -> None:
    opening = device.connect()
    device.site.opened(opening)
    lie = device.site.word(device.site.openings[device.did][-1], issued=device.site.now() + years * 365 * DAY)
    assert refusal(lambda: device.tell_session(lie)) == "wrong_time"
    assert not device.identity.floor.has_time
    assert device.guard.session == ""


def test_a_recorded_word_on_an_earlier_opening_of_the_connection_does_not_turn_time_back(device: Guarded) -> None:
    opening = device.connect()
    _, recorded = device.site.opened(opening)
    device.tell_session(recorded)
    device.clock.move(10 * 3600)
    device.tell_session(device.site.roll_call(device.did))
    device.tick(1)
    device.opening()
    device.tell_session(recorded)
    assert device.identity.floor.now(device.clock.monotonic()) == device.site.now()


# --- what is said to everybody ---------------------------------------------------------------------------------------


def test_a_confirmation_for_everybody_counts_for_those_whose_bit_is_set(device: Guarded) -> None:
    mine = bitmap.pack([0])
    topic = topics.group_ack("lisbon")
    assert device.tell(topic, device.site.ack(JID, bits=mine)) is None  # No place is known before the session.
    device.live()
    assert device.tell(topic, device.site.ack(JID, bits=mine)) == Confirm([JID])
    assert device.tell(topic, device.site.ack(JID, bits=bitmap.pack([1]))) is None
    assert (
        refusal(lambda: device.tell(topic, device.site.ack(JID, bits=mine, key=signing_key("x")))) == "unknown_issuer"
    )
    assert refusal(lambda: device.tell(topic, device.site.ack(JID, bits=mine, key=device.site.fleet.a.key))) == (
        "unknown_issuer"
    )
    recorded = device.site.ack(JID, bits=mine, issued=device.site.now() - 1000)
    assert refusal(lambda: device.tell(topic, recorded)) == "stale_ack"


def test_a_cancel_is_the_sites_and_says_to_whom_it_was_said(device: Guarded) -> None:
    device.live()
    assert device.tell_all(device.site.cancel(JID)) == Cancelled(JID, named=False)
    assert device.tell_all(device.site.cancel(JID, bitmap.pack([0]))) == Cancelled(JID, named=True)
    assert device.tell_me(device.site.cancel(JID)) == Cancelled(JID, named=True)
    assert device.tell_all(device.site.cancel(JID, bitmap.pack([1]))) is None
    assert refusal(lambda: device.tell_all(device.site.cancel(JID, key=signing_key("x")))) == "unknown_issuer"
    assert device.counters.ignored == 1


# --- any bytes -------------------------------------------------------------------------------------------------------


@settings(
    max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(data=st.data(), payload=st.binary(max_size=200))
def test_any_bytes_on_any_topic_are_refused_and_nothing_else(
    device: Guarded, data: st.DataObject, payload: bytes
) -> None:
    topic = data.draw(st.sampled_from(device.guard.subscriptions()))
    device.guard.index = 0
    with pytest.raises(Refused):
        device.tell(topic, payload)


def test_a_message_over_its_size_is_refused_before_it_is_read(device: Guarded) -> None:
    device.live()
    for topic in device.guard.subscriptions():
        assert refusal(device.tell, topic, b"\x83" * (limits.MESSAGE_BYTES + 1)) == "oversized"


def test_every_change_of_one_byte_of_what_a_site_says_is_refused(device: Guarded) -> None:
    opening = device.connect()
    _, word = device.site.opened(opening)
    device.site.rotate()
    said = {
        topics.device_sok("lisbon", device.did): word,
        topics.device_ep("lisbon", device.did): device.site.epoch_for(device.did),
        topics.group_ack("lisbon"): device.site.ack(JID, bits=b"\x01"),
        topics.group_job("lisbon"): device.site.cancel(JID),
    }
    device.guard.index = 0
    for topic, payload in said.items():
        for place in range(0, len(payload), 3):
            changed = payload[:place] + bytes([payload[place] ^ 0x10]) + payload[place + 1 :]
            with pytest.raises(Refused):
                device.tell(topic, changed)


def test_the_guard_of_another_site_of_the_fleet_does_not_believe_this_one() -> None:
    device = Guarded()
    porto = TrustedSite(Fleet("porto"), device.clock)
    device.live()
    porto.requests.update(device.site.requests)
    porto.group_key = device.site.group_key
    device.identity.anchor.take_site_certificate(porto.certificates[0], porto.now())
    assert refusal(lambda: device.tell_me(porto.job(1))) == "wrong_site"
    assert refusal(lambda: device.tell_me(porto.job(1, site="lisbon", key=porto.key))) == "wrong_site"
