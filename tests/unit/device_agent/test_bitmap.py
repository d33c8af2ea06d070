"""device_agent/protocol/bitmap.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from device_agent.protocol import limits
from device_agent.protocol.bitmap import has, pack

indices = st.integers(0, limits.DEVICES_PER_STATION - 1)


@given(chosen=st.sets(indices, max_size=200), asked=indices)
def test_exactly_the_packed_devices_are_in_the_bitmap(chosen: set[int], asked: int) -> None:
    bitmap = pack(chosen)
    assert all(has(bitmap, index) for index in chosen)
    assert has(bitmap, asked) == (asked in chosen)
    assert sum(byte.bit_count() for byte in bitmap) == len(chosen)


@given(bitmap=st.binary(max_size=64), asked=indices)
def test_any_bytes_are_a_bitmap(bitmap: bytes, asked: int) -> None:
    assert isinstance(has(bitmap, asked), bool)


def test_a_bitmap_is_just_as_long_as_its_highest_device_needs() -> None:
    assert pack([]) == b""
    assert pack([0]) == b"\x01"
    assert pack([7, 8]) == b"\x80\x01"
    assert len(pack([limits.DEVICES_PER_STATION - 1])) == limits.DEVICES_PER_STATION // 8


def test_a_device_past_the_end_is_not_meant() -> None:
    assert not has(b"\xff", 8)
