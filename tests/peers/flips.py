"""Proofs as an attacker would send them: one bit turned over, or claims of any kind under a signature that holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from device_agent.errors import Refused


def flipped(body: bytes, bits: Sequence[int] = range(8)) -> Iterator[bytes]:
    """The same bytes with one bit turned over, for every bit, or for these of every byte."""
    for place in range(len(body)):
        for bit in bits:
            changed = bytearray(body)
            changed[place] ^= 1 << bit
            yield bytes(changed)


def reasons_of_flips(body: bytes, read: Callable[[bytes], object], bits: Sequence[int] = range(8)) -> set[str]:
    """Read the proof with each bit turned over: the reasons it was refused for. Fails when one is not."""
    read(body)
    reasons = set()
    for number, changed in enumerate(flipped(body, bits)):
        try:
            read(changed)
        except Refused as refused:
            reasons.add(refused.reason)
        else:
            raise AssertionError(f"accepted with byte {number // len(bits)} of {len(body)} changed: {changed.hex()}")
    return reasons


def refused_or_read(read: Callable[[bytes], object], body: bytes) -> None:
    """Read any bytes; whatever is raised beside ``Refused`` passes through and fails the test."""
    with suppress(Refused):
        read(body)


def any_claims(labels: Sequence[int]) -> st.SearchStrategy[dict[int, Any]]:
    """Maps from these claims to plain values of any kind, with values near the right ones among them."""
    numbers = st.integers(min_value=-2, max_value=2**64 - 1)
    texts = st.sampled_from(["", "all", "site-1", "a" * 26, "é"]) | st.text(max_size=40)
    octets = st.sampled_from([0, 8, 16, 20, 32]).map(bytes) | st.binary(max_size=40)
    plain = numbers | texts | octets | st.none() | st.booleans() | st.floats()
    nested = st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(-3, 3), inner, max_size=3)
    )
    return st.dictionaries(st.sampled_from(list(labels)), nested, max_size=len(labels))
