"""upstream/salt/wire.py."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from tests.peers.refusals import reason
from upstream.salt.wire import (
    MOST_DEPTH,
    WRITTEN_DEPTH,
    Unreadable,
    binary,
    fields_of,
    pack,
    readable_fields,
    text,
    texts,
    unpack,
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=20) | st.dictionaries(st.text() | st.integers(0, 1 << 40), inner, max_size=20)
    ),
    max_leaves=40,
)


@given(PLAIN)
def test_what_is_packed_is_read_back(value: object) -> None:
    assert texts(unpack(pack(value))) == value


@given(PLAIN)
def test_what_another_library_reads_is_the_same(value: object) -> None:
    assert msgspec.msgpack.decode(pack(value), strict=False) == value


@given(PLAIN)
def test_what_another_library_packs_is_read(value: object) -> None:
    assert texts(unpack(msgspec.msgpack.encode(value))) == value


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(Refused):
        texts(unpack(body))


@pytest.mark.parametrize("length", [0, 31, 32, 255, 256, 65_535, 65_536])
def test_bytes_stay_bytes_and_text_is_raw(length: int) -> None:
    assert unpack(pack(b"\xff" * length)) == b"\xff" * length
    assert unpack(pack("a" * length)) == b"a" * length


def test_the_old_format_knows_neither_bin_nor_short_str() -> None:
    for value in ("x" * 40, b"\xff" * 40, b"\xff" * 70_000):
        assert pack(value)[0] in (0xDA, 0xDB)


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_long_lists_and_maps(count: int) -> None:
    assert unpack(pack([None] * count)) == [None] * count
    assert unpack(pack(dict.fromkeys(range(count)))) == dict.fromkeys(range(count))


def test_an_integer_that_no_form_holds_goes_as_text() -> None:
    assert unpack(pack([1 << 64, -(1 << 63) - 1])) == [b"18446744073709551616", b"-9223372036854775809"]


def test_what_has_no_form_goes_as_its_text() -> None:
    assert unpack(pack([1 + 2j, {3}, (4,), "\ud800"])) == [b"(1+2j)", [3], [4], b"?"]


def test_times_and_constants_of_salt() -> None:
    stamp = b"20261123T22:00:00.000001"
    assert unpack(bytes([0xC7, len(stamp), 78]) + stamp) == stamp
    inner = pack(["NAME", "value"])
    assert unpack(bytes([0xC7, len(inner), 79]) + inner) == b"value"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "malformed"),
        (b"\x01\x01", "malformed"),
        (b"\xc1", "malformed"),
        (b"\xdd\xff\xff\xff\xff", "malformed"),
        (b"\xdf\xff\xff\xff\xff\x00", "malformed"),
        (b"\xdb\xff\xff\xff\xff\x00", "malformed"),
        (b"\x81\x90\x01", "malformed"),
        (b"\xd4\x05\x00", "malformed"),
        (b"\xd4\x4f\x00", "malformed"),
        (b"\xca\x00\x00", "malformed"),
        (b"\x91" * 200 + b"\x00", "too_deep"),
        (b"\x91" * 100_000, "too_deep"),
        (b"\xd8\x4f" + b"\xd6\x4f" * 8, "malformed"),
    ],
)
def test_what_is_none_of_it_is_refused(body: bytes, why: str) -> None:
    assert reason(unpack, body) == why


def test_what_is_too_large_is_refused() -> None:
    assert reason(unpack, b"\x00" * 11, 10) == "too_large"
    many = b"\xdd" + (1_000_001).to_bytes(4, "big") + b"\x00" * 1_000_001
    assert reason(unpack, many) == "too_large"


def test_what_is_too_deep_is_not_sent() -> None:
    value: Any = None
    for _ in range(WRITTEN_DEPTH + 2):
        value = [value]
    assert reason(pack, value) == "too_deep"


def test_whatever_an_order_may_hold_can_be_answered_with_it() -> None:
    arguments: list[Any] = []
    while True:
        try:
            order = unpack(pack({"arg": [*arguments, arguments]}))
        except Refused:
            break
        arguments = [arguments]
        answer = {"fun_args": order[b"arg"]}
        assert unpack(pack({"load": [{"return": {"cam-1": answer}}]}), most_depth=2 * MOST_DEPTH)
    assert str(arguments).count("[") > MOST_DEPTH - 4, "it was tried as deep as is read"


def test_fields_are_taken_by_their_kind() -> None:
    fields = fields_of(pack({"a": b"\xff", "b": "text", "c": 4}))
    assert binary(fields, "a") == b"\xff"
    assert text(fields, "b") == "text"
    for take, name in ((text, "a"), (binary, "c"), (text, "c"), (binary, "none")):
        assert reason(take, fields, name) == "malformed"
    assert reason(fields_of, pack([])) == "malformed"


DEEP = b"\x91" * 5_000 + b"\xc0"
"""A list in a list, and so on."""


def message(**fields: bytes) -> bytes:
    """A map with these values, packed already."""
    return bytes([0x80 + len(fields)]) + b"".join(pack(name) + value for name, value in fields.items())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (DEEP, "deeper than"),
        (b"\x81\x91\x01\x02", "a key that is no plain value"),
        (b"\xd4\x05\x00", "an extension of kind 5"),
        (b"\xc7\x03\x05abc", "an extension of kind 5"),
        (b"\xdc\x00\x02" + DEEP + b"\xcb" + bytes(8), "deeper than"),
        (b"\xde\x00\x01\xd9\x01a" + DEEP, "deeper than"),
        (b"\x92\xd6\x05" + bytes(4) + b"\xa2xy", "an extension of kind 5"),
        (b"\xdd" + (1_000_001).to_bytes(4, "big") + b"\x00" * 1_000_001, "more than 1000000 values"),
        (b"\xdd" + (1_500_000).to_bytes(4, "big") + b"\xa1x" * 1_500_000, "more than 1000000 values"),
        (b"\xdf" + (600_000).to_bytes(4, "big") + b"\xa1x\x07" * 600_000, "more than 1000000 values"),
        (b"\x92" + DEEP + b"\xdd" + (1_000_001).to_bytes(4, "big") + b"\x00" * 1_000_001, "deeper than"),
    ],
    ids=range(11),
)
def test_a_field_that_cannot_be_read_leaves_the_others_readable(value: bytes, why: str) -> None:
    fields = texts(readable_fields(message(jid=pack("1"), arg=value, tgt=pack(["a", {"b": 2}]))))
    assert (fields["jid"], fields["tgt"]) == ("1", ["a", {"b": 2}])
    assert isinstance(fields["arg"], Unreadable)
    assert why in fields["arg"].why


@given(st.dictionaries(st.text(), PLAIN, max_size=8))
def test_fields_that_can_be_read_are_read_as_the_whole_message_is(fields: dict[str, Any]) -> None:
    assert readable_fields(pack(fields)) == unpack(pack(fields))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "malformed"),
        (b"\x91\x01", "malformed"),
        (message(a=pack(1)) + b"\x00", "malformed"),
        (message(a=b"\xd4\x05"), "malformed"),
        (message(a=b"\xc1"), "malformed"),
        (b"\x81\x01\x01", "malformed"),
        (b"\x81\x91\x01\x01", "too_deep"),
        (message(a=b"\x91" * 3_000_000 + b"\xc0"), "too_large"),
    ],
)
def test_a_message_whose_fields_cannot_be_told_apart_is_refused(body: bytes, why: str) -> None:
    assert reason(readable_fields, body) == why


def test_the_fields_after_one_with_too_many_values_have_values_enough_for_a_target() -> None:
    too_many = b"\xdd" + (1_000_001).to_bytes(4, "big") + b"\xc0" * 1_000_001
    names = [f"cam-{number}" for number in range(20_000)]
    fields = texts(readable_fields(message(arg=too_many, tgt=pack(names), metadata=too_many, jid=pack("1"))))
    assert (fields["tgt"], fields["jid"]) == (names, "1")
    assert isinstance(fields["metadata"], Unreadable)


@given(PLAIN)
def test_a_value_is_skipped_to_its_end(value: Any) -> None:
    deep = b"\x91" * 60 + pack(value)
    fields = readable_fields(message(deep=deep, behind=pack(7)))
    assert isinstance(fields[b"deep"], Unreadable)
    assert fields[b"behind"] == 7


@given(st.binary(max_size=300))
def test_fields_of_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(Refused):
        assert isinstance(readable_fields(b"\x83" + body), dict)
