"""CBOR as proofs use it: one encoding for each value, shallow, and only plain types (RFC 8949, section 4.2).

A value that is decoded and encoded again gives the same bytes, so nothing can hide in a second way to write it:
trailing bytes, doubled keys, lengths that are not the shortest. Before a decoder sees them, the bytes are walked over
for what would make it work for the sender: tags stand for calendars, regular expressions, numbers of any size, and for
references with which 200 bytes decode to gigabytes.
"""

from __future__ import annotations

from typing import Any, Final

import cbor2

from device_agent.errors import Refused
from device_agent.protocol import limits

DEPTH = 8
"""How deep a signed object nests."""

VALUE_DEPTH = limits.VALUE_DEPTH + 4
"""How deep arguments of a function nest, with what is around them."""

_BYTES, _TEXT, _MAP, _TAG = 2, 3, 5, 6
_PLAIN_OTHERS: Final = frozenset({0xF4, 0xF5, 0xF6, 0xF9, 0xFB})
"""False, true, null, and floats of 2 bytes (infinity, not a number) and of 8 bytes."""

_WIDTHS: Final = {24: 1, 25: 2, 26: 4, 27: 8}


def encode(value: Any) -> bytes:
    """A plain value as CBOR; maps keep the order in which they were made."""
    return cbor2.dumps(value)


def decode(body: bytes, limit: int = limits.MESSAGE_BYTES, depth: int = DEPTH) -> Any:
    """A plain value from CBOR. Raises ``Refused`` (``oversized``, ``malformed``, ``not_canonical``)."""
    if len(body) > limit:
        raise Refused("oversized", f"{len(body)} bytes, at most {limit}")
    _check_shape(body, depth)
    try:
        value = cbor2.loads(body)
        again = cbor2.dumps(value)
    # Whatever a decoder stumbles over, to us it is one thing: bytes that are no proof.
    except Exception as error:  # noqa: BLE001 - the decoder has errors of its own and lets those of Python through
        raise Refused("malformed", f"{type(error).__name__}: {str(error)[:200]}") from None
    if again != body:
        raise Refused("not_canonical", "the same value is written in another way")
    return value


def _check_shape(body: bytes, depth: int) -> None:
    """Refuse tags, open ends, keys that are no number or text, and what is nested deeper than ``depth``."""
    place, end = 0, len(body)
    left, in_map = 1, False
    around: list[tuple[int, bool]] = []
    while left or around:
        if not left:
            left, in_map = around.pop()
            continue
        if place >= end:
            raise Refused("malformed", "it ends too early")
        first = body[place]
        place += 1
        left -= 1
        kind, value = first >> 5, first & 31
        if value > 23:
            width = _WIDTHS.get(value)
            if width is None:
                raise Refused("malformed", "a length that is left open")
            value = int.from_bytes(body[place : place + width])
            place += width
        if kind < _BYTES:
            continue
        if kind == _TEXT:
            place += value
            continue
        if in_map and left % 2:
            raise Refused("malformed", "a key that is no number and no text")
        if kind == _BYTES:
            place += value
        elif kind < _TAG:
            around.append((left, in_map))
            if len(around) > depth:
                raise Refused("malformed", f"nested deeper than {depth}")
            left, in_map = (2 * value, True) if kind == _MAP else (value, False)
        elif first not in _PLAIN_OTHERS:
            raise Refused("malformed", "a value that is not plain")
    if place != end:
        raise Refused("not_canonical" if place < end else "malformed", f"{end} bytes, and {place} are spoken for")
