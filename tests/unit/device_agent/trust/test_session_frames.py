"""device_agent/trust/session_frames.py: each frame is read once, by the other end, on its topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust.session_frames import FRAMES_MAX, OVERHEAD_BYTES, SESSION_SECONDS, Session, frame_sid
from tests.peers.flips import reasons_of_flips

SECRET = b"\x06" * 32
UP = "os/site-1/d/aaaaaaaaaaaaaaaaaaaaaaaaaa/up/f"
DOWN = "os/site-1/d/aaaaaaaaaaaaaaaaaaaaaaaaaa/job"


def both_ends(opening: bytes = b"opening") -> tuple[Session, Session]:
    device = Session.between(SECRET, opening, device=True, opened=0.0)
    return device, Session.between(SECRET, opening, device=False, opened=0.0)


def refused(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)
    return caught.value.reason


def test_both_ends_read_each_other() -> None:
    device, station = both_ends()
    for word in (b"", b"hello", bytes(1000)):
        assert station.open(device.seal(word, UP, 1.0), UP, 1.0) == word
        assert device.open(station.seal(word, DOWN, 1.0), DOWN, 1.0) == word


def test_a_frame_costs_34_bytes_and_names_its_session() -> None:
    device, _ = both_ends()
    frame = device.seal(b"hello", UP, 0.0)
    assert frame_sid(frame) == device.sid
    assert len(frame) == OVERHEAD_BYTES + 5 == 39


def test_whatever_bit_of_a_frame_is_turned_over_it_is_refused_and_the_frame_itself_is_still_taken() -> None:
    device, station = both_ends()
    frame = device.seal(b"a word", UP, 0.0)
    untouched = station._in_last

    def read(body: bytes) -> object:
        station._in_last = untouched
        return station.open(body, UP, 0.0)

    assert reasons_of_flips(frame, read) >= {"bad_frame", "unknown_session", "wrong_direction", "malformed"}
    station._in_last = untouched
    assert station.open(frame, UP, 0.0) == b"a word"


def test_a_refused_frame_moves_no_counter() -> None:
    device, station = both_ends()
    frame = bytearray(device.seal(b"a word", UP, 0.0))
    later = bytes(frame[:10]) + (2**31).to_bytes(8, "big") + bytes(frame[18:])
    assert refused(station.open, later, UP, 0.0) == "bad_frame"
    assert station.open(bytes(frame), UP, 0.0) == b"a word"


def test_a_replayed_frame_is_refused() -> None:
    device, station = both_ends()
    first, second = device.seal(b"1", UP, 0.0), device.seal(b"2", UP, 0.0)
    station.open(first, UP, 0.0)
    assert refused(station.open, first, UP, 0.0) == "replayed_frame"
    station.open(second, UP, 0.0)
    assert refused(station.open, first, UP, 0.0) == "replayed_frame"


def test_a_frame_moved_to_another_topic_is_refused() -> None:
    device, station = both_ends()
    frame = device.seal(b"1", UP, 0.0)
    assert refused(station.open, frame, UP.replace("site-1", "site-2"), 0.0) == "bad_frame"
    assert refused(station.open, frame, "\ud800", 0.0) == "bad_frame"
    assert station.open(frame, UP, 0.0) == b"1"


def test_a_frame_thrown_back_at_its_sender_is_refused() -> None:
    device, station = both_ends()
    frame = device.seal(b"1", UP, 0.0)
    assert refused(device.open, frame, UP, 0.0) == "wrong_direction"
    turned = frame[:1] + b"\x02" + frame[2:]
    assert refused(device.open, turned, UP, 0.0) == "bad_frame"
    assert refused(station.open, turned, UP, 0.0) == "wrong_direction"


def test_a_frame_that_was_lost_does_not_stop_the_next() -> None:
    device, station = both_ends()
    device.seal(b"lost", UP, 0.0)
    assert station.open(device.seal(b"here", UP, 0.0), UP, 0.0) == b"here"


def test_a_frame_of_another_session_is_refused() -> None:
    _, station = both_ends()
    other, _ = both_ends(b"another opening")
    assert refused(station.open, other.seal(b"1", UP, 0.0), UP, 0.0) == "unknown_session"


def test_a_session_is_over_after_a_day() -> None:
    device, station = both_ends()
    frame = device.seal(b"late", UP, SESSION_SECONDS - 1.0)
    assert not device.over(SESSION_SECONDS - 1.0)
    assert device.over(SESSION_SECONDS)
    assert refused(device.seal, b"1", UP, float(SESSION_SECONDS)) == "session_over"
    assert refused(station.open, frame, UP, float(SESSION_SECONDS)) == "session_over"


def test_a_session_is_over_when_its_frames_are_used_up() -> None:
    device, station = both_ends()
    device._out_next = FRAMES_MAX - 1
    frame = device.seal(b"last", UP, 0.0)
    assert device.over(0.0)
    assert refused(device.seal, b"1", UP, 0.0) == "session_over"
    device._out_next, device._in_last = FRAMES_MAX, -1
    assert station.open(frame, UP, 0.0) == b"last"
    assert station.over(0.0)


def test_a_counter_beyond_the_last_is_refused_although_it_is_sealed() -> None:
    device, station = both_ends()
    header = device.seal(b"", UP, 0.0)[:10] + FRAMES_MAX.to_bytes(8, "big")
    beyond = header + device._out.encrypt(b"\0\0\0\0" + header[10:], b"1", header + UP.encode())
    assert refused(station.open, beyond, UP, 0.0) == "session_over"


def test_a_word_that_no_broker_would_carry_is_not_sealed_and_uses_no_counter() -> None:
    device, station = both_ends()
    assert refused(device.seal, bytes(limits.MESSAGE_BYTES), UP, 0.0) == "oversized"
    assert refused(station.open, b"\x01\x01" + station.sid + bytes(limits.MESSAGE_BYTES), UP, 0.0) == "oversized"
    assert device.seal(b"", UP, 0.0)[10:18] == bytes(8)


@given(st.binary(max_size=80))
def test_any_bytes_are_no_frame(body: bytes) -> None:
    _, station = both_ends()
    assert refused(station.open, body, UP, 0.0)
    assert refused(station.open, b"\x01\x01" + station.sid + body, UP, 0.0)
