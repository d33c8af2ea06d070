"""The lean MQTT codec and its protocol: packets in any pieces, and refusal of everything else."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.lean_mqtt import (
    PACKET_BYTES,
    PINGREQ,
    Connack,
    LeanConnection,
    Packet,
    Parser,
    Pingresp,
    Publish,
    Suback,
    encode_connect,
    encode_publish,
    encode_subscribe,
)

STREAM = (
    b"\x20\x02\x00\x00" + b"\x90\x05\x00\x01\x00\x00\x00" + encode_publish("os/s/g/all/job", b"p" * 300) + b"\xd0\x00"
)
PACKETS: list[Packet] = [
    Connack(0),
    Suback(1, b"\x00\x00\x00"),
    Publish("os/s/g/all/job", b"p" * 300),
    Pingresp(),
]


def test_connect_is_the_standards_own_bytes() -> None:
    # Figure 3.6 of the standard, with the fields this client sends.
    packet = encode_connect("cam", 60, ("w", b"x"), "u", "p")
    assert packet == (b"\x10\x1b\x00\x04MQTT\x04\xc6\x00\x3c\x00\x03cam\x00\x01w\x00\x01x\x00\x01u\x00\x01p")
    assert encode_connect("cam", 60)[9] == 0x02


def test_subscribe_asks_for_qos_0() -> None:
    assert encode_subscribe(1, ["a", "b"]) == b"\x82\x0a\x00\x01\x00\x01a\x00\x00\x01b\x00"


@pytest.mark.parametrize("size", [0, 1, 120, 124, 125, 16_379, 16_380, 200_000])
def test_a_published_message_of_any_size_parses_back(size: int) -> None:
    assert Parser().feed(encode_publish("a", b"x" * size)) == [Publish("a", b"x" * size)]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_packets_come_whole_from_any_pieces(cuts: list[int]) -> None:
    parser = Parser()
    places = [0, *sorted(cuts), len(STREAM)]
    packets = [packet for start, end in pairwise(places) for packet in parser.feed(STREAM[start:end])]
    assert packets == PACKETS


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_any_bytes_are_packets_or_a_refusal(pieces: list[bytes]) -> None:
    parser = Parser()
    reason = "none"
    try:
        for piece in pieces:
            for packet in parser.feed(piece):
                assert isinstance(packet, (Connack, Suback, Publish, Pingresp))
    except Refused as refused:
        reason = refused.reason
    assert reason in {"none", "mqtt_malformed", "mqtt_oversized", "mqtt_unexpected"}


@given(st.sampled_from([0x20, 0x30, 0x31, 0x90, 0xD0]), st.binary(max_size=100))
def test_any_body_of_a_known_packet_is_a_packet_or_a_refusal(header: int, body: bytes) -> None:
    try:
        packets = Parser().feed(bytes((header, len(body))) + body)
    except Refused:
        return
    assert len(packets) == 1


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\x30\xff\xff\xff\xff\x01", "mqtt_malformed"),
        (b"\x30\xff\xff\xff\x7f", "mqtt_oversized"),
        (b"\x32\x05\x00\x01a\x00\x01", "mqtt_unexpected"),
        (b"\x30\x01\x00", "mqtt_malformed"),
        (b"\x30\x03\x00\x09a", "mqtt_malformed"),
        (b"\x30\x02\x00\x00", "mqtt_malformed"),
        (b"\x30\x03\x00\x01\xff", "mqtt_malformed"),
        (b"\x30\x03\x00\x01#", "mqtt_malformed"),
        (b"\x20\x01\x00", "mqtt_malformed"),
        (b"\x90\x03\x00\x01\x07", "mqtt_malformed"),
        (b"\xd0\x01\x00", "mqtt_malformed"),
        (b"\x00\x00", "mqtt_unexpected"),
        (b"\x10\x00", "mqtt_unexpected"),
    ],
)
def test_what_no_broker_may_send_is_refused_by_its_name(stream: bytes, reason: str) -> None:
    with pytest.raises(Refused) as raised:
        Parser().feed(stream)
    assert raised.value.reason == reason


def test_a_packet_that_is_announced_too_large_is_refused_before_it_is_stored() -> None:
    parser = Parser()
    announced = PACKET_BYTES + 1
    length = bytes((announced & 0x7F | 0x80, announced >> 7 & 0x7F | 0x80, announced >> 14))
    with pytest.raises(Refused, match="mqtt_oversized"):
        parser.feed(b"\x30" + length)


class FakeTransport(asyncio.Transport):
    """Remembers what was written, and how it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = ""

    def is_closing(self) -> bool:
        return self.ended != ""

    def write(self, data: Any) -> None:
        # As uvloop has it, once the socket is gone and before it has told so.
        if self.ended:
            raise RuntimeError("the handler is closed")
        self.written += bytes(data)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high


class Ends:
    """A connection between two fakes, and what it told its owner."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.transport = FakeTransport()
        self.connection = LeanConnection(
            greeting=encode_connect("cam", 60),
            subscriptions=["a", "b"],
            keepalive_seconds=60,
            on_message=lambda topic, payload: self.told.append((topic, payload)),
            on_ready=lambda: self.told.append("ready"),
            on_lost=lambda reason: self.told.append(f"lost: {reason}"),
            on_refused=lambda refused: self.told.append(refused.reason),
        )
        self.connection.connection_made(self.transport)

    def granted(self) -> None:
        self.connection.data_received(b"\x20\x02\x00\x00\x90\x04\x00\x01\x00\x00")


def test_nothing_is_written_to_a_socket_that_is_gone_and_has_not_told_so_yet() -> None:
    ends = Ends()
    ends.granted()
    ends.transport.ended = "lost"
    assert not ends.connection.publish("t", b"x")
    ends.connection.tick(100.0)
    ends.connection.close()
    ends.connection.connection_lost(ConnectionResetError("reset"))
    assert ends.told == ["ready", "lost: reset"]


def test_a_connection_is_ready_when_its_subscriptions_are_granted() -> None:
    ends = Ends()
    assert ends.transport.written == encode_connect("cam", 60) + encode_subscribe(1, ["a", "b"])
    assert not ends.connection.publish("t", b"early")
    ends.granted()
    assert ends.told == ["ready"]
    assert ends.connection.publish("t", b"x")
    assert ends.transport.written.endswith(encode_publish("t", b"x"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\x20\x02\x00\x05", "not authorized"),
        (b"\x20\x02\x00\x00\x90\x04\x00\x01\x00\x80", "refused a subscription"),
        (b"\x20\x02\x00\x00\x90\x03\x00\x01\x00", "refused a subscription"),
    ],
)
def test_a_broker_that_says_no_ends_the_connection_with_its_reason(answer: bytes, words: str) -> None:
    ends = Ends()
    ends.connection.data_received(answer)
    assert ends.transport.ended == "aborted"
    ends.connection.connection_lost(None)
    assert len(ends.told) == 1
    assert words in ends.told[0]


def test_bytes_that_are_not_mqtt_are_counted_and_end_the_connection() -> None:
    ends = Ends()
    ends.granted()
    ends.connection.data_received(b"HTTP/1.1 400 Bad Request\r\n" * 4)
    assert ends.told == ["ready", "mqtt_unexpected"]
    assert ends.transport.ended == "aborted"


def test_a_broker_that_answers_pings_is_kept_and_one_that_does_not_is_given_up() -> None:
    ends = Ends()
    ends.granted()
    ends.connection.tick(100.0)
    assert ends.transport.written.endswith(PINGREQ)
    ends.connection.data_received(b"\xd0\x00")
    ends.connection.tick(131.0)
    assert ends.transport.ended == ""
    ends.connection.tick(162.0)
    assert ends.transport.ended == "aborted"


def test_messages_are_dropped_and_not_stored_while_the_socket_does_not_keep_up() -> None:
    ends = Ends()
    ends.granted()
    ends.connection.pause_writing()
    assert not ends.connection.publish("t", b"x")
    ends.connection.resume_writing()
    assert ends.connection.publish("t", b"x")


def test_a_clean_close_says_goodbye_so_that_no_will_is_published() -> None:
    ends = Ends()
    ends.granted()
    ends.connection.close()
    assert ends.transport.written.endswith(b"\xe0\x00")
    assert ends.transport.ended == "closed"
