"""What the attacks are seen with would see them: canaries in every form, and the whole of what a sniffer hears."""

from __future__ import annotations

import base64

import pytest

from device_agent.lean_mqtt import encode_connect, encode_publish
from tests.peers.canaries import Canary, found_in
from tests.peers.sniffer import packets


@pytest.mark.parametrize("before", [b"", b"x", b"xy", b"xyz"])
def test_a_canary_is_found_in_whatever_form_it_stands_somewhere(before: bytes) -> None:
    canary, other = Canary("a canary"), Canary("another")
    for octets in (canary.octets, canary.text.encode()):
        whole = before + octets + b"after it"
        forms = (whole, whole.hex().encode(), whole.hex().upper().encode())
        for form in (*forms, base64.b64encode(whole), base64.urlsafe_b64encode(whole)):
            assert found_in([other, canary], b"\0" + form + b"\0") == ["a canary"], form
        assert found_in([other, canary], whole[::-1]) == []


def test_packets_are_found_in_a_stream_that_ends_anywhere() -> None:
    said = [encode_connect("x", 60, ("a/b", b"will"), "user", "word"), encode_publish("a/c", bytes(300))]
    stream = b"".join(said)
    assert [header for header, _ in packets(stream)] == [0x10, 0x30]
    assert packets(stream)[1][1] == b"\0\x03a/c" + bytes(300)
    assert [header for header, _ in packets(stream[:-1])] == [0x10]
    assert packets(stream[:1]) == []
