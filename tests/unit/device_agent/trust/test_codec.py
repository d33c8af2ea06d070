"""device_agent/trust/codec.py: one encoding for each value, and a decoder that works for nobody but us."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import codec
from tests.peers.flips import refused_or_read

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=30)
    | st.binary(max_size=300)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=30) | st.dictionaries(st.integers(-300, 300) | st.text(max_size=5), inner, max_size=30)
    ),
    max_leaves=30,
)


def nested(depth: int) -> bytes:
    return b"\x81" * depth + b"\x00"


def reference(number: int) -> bytes:
    return b"\xd8\x1d" + cbor2.dumps(number)


def references() -> bytes:
    """A list of pairs, each of which is twice the one before: 158 bytes that are written out as half a megabyte."""
    pairs = [b"\xd8\x1c\x82" + reference(number) * 2 for number in range(17)]
    return b"\x92" + b"\xd8\x1c\x80" + b"".join(pairs)


@given(VALUES)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert codec.decode(codec.encode(value), depth=60) == value


@given(VALUES, st.integers(0, 10_000), st.binary(min_size=1, max_size=4))
def test_any_bytes_give_a_value_or_a_refusal(value: Any, place: int, put: bytes) -> None:
    body = codec.encode(value)
    place %= len(body)
    refused_or_read(codec.decode, put)
    refused_or_read(codec.decode, body[:place] + put + body[place:])
    refused_or_read(codec.decode, body[:place])


@given(st.binary(max_size=64))
def test_what_is_read_has_no_other_encoding(body: bytes) -> None:
    try:
        value = codec.decode(body)
    except Refused:
        return
    assert codec.encode(value) == body


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "malformed"),
        ("82 01", "malformed"),  # a list that ends too early
        ("19 01", "malformed"),  # a number that ends too early
        ("5b ffffffffffffffff 00", "malformed"),
        ("9b ffffffffffffffff 00", "malformed"),
        ("01 02", "not_canonical"),  # something after it
        ("18 01", "not_canonical"),  # a longer head than needed
        ("a2 01 01 01 02", "not_canonical"),  # a key twice
        ("fb 7ff8000000000001", "not_canonical"),  # another kind of not a number
        ("f9 3c00", "not_canonical"),  # a shorter float
        ("9f 01 ff", "malformed"),  # open ends
        ("5f 41 00 ff", "malformed"),
        ("bf ff", "malformed"),
        ("1c", "malformed"),
        ("ff", "malformed"),
        ("f7", "malformed"),  # undefined
        ("e0", "malformed"),  # simple values
        ("f8 20", "malformed"),
        ("c1 00", "malformed"),  # tags: a time, a large number, a regular expression, an address
        ("c2 49 010000000000000000", "malformed"),
        ("d8 23 62 2e2a", "malformed"),
        ("d9 0104 44 7f000001", "malformed"),
        ("a1 f5 00", "malformed"),  # keys that are no numbers and no text
        ("a1 41 00 00", "malformed"),
        ("a1 80 00", "malformed"),
        ("a1 fb 3ff199999999999a 00", "malformed"),
        ("62 c328", "malformed"),  # text that is no UTF-8
        ("63 eda080", "malformed"),
    ],
)
def test_what_is_not_plain_and_canonical_is_refused(body: str, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        codec.decode(bytes.fromhex(body))
    assert refused.value.reason == reason


def test_not_a_number_and_infinity_have_one_encoding() -> None:
    assert math.isnan(codec.decode(bytes.fromhex("f97e00")))
    assert codec.decode(bytes.fromhex("f97c00")) == math.inf


def test_depth_is_bounded() -> None:
    assert codec.decode(nested(codec.DEPTH)) is not None
    for depth in (codec.DEPTH + 1, 100_000):
        with pytest.raises(Refused) as refused:
            codec.decode(nested(depth))
        assert refused.value.reason == "malformed"


def test_size_is_bounded() -> None:
    value = b"\x00" * (limits.MESSAGE_BYTES - 5)
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(Refused) as refused:
        codec.decode(codec.encode(value + b"\x00"))
    assert refused.value.reason == "oversized"


def test_a_few_bytes_do_not_become_many() -> None:
    assert len(cbor2.dumps(cbor2.loads(references()))) > 1000 * len(references())
    tracemalloc.start()
    with pytest.raises(Refused):
        codec.decode(references())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024
