"""Which devices of a site a broadcast is for: one bit for each device index, lowest bit first."""

from __future__ import annotations

from collections.abc import Iterable


def pack(indices: Iterable[int]) -> bytes:
    """A bitmap just long enough for the highest index."""
    chosen = list(indices)
    if not chosen:
        return b""
    bits = bytearray(max(chosen) // 8 + 1)
    for index in chosen:
        bits[index >> 3] |= 1 << (index & 7)
    return bytes(bits)


def has(bitmap: bytes, index: int) -> bool:
    """Whether the bit is set; past the end it is not."""
    place = index >> 3
    return place < len(bitmap) and bool(bitmap[place] >> (index & 7) & 1)
