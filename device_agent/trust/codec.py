"""CBOR as proofs use it: one encoding for each value, shallow, and only plain types (RFC 8949, section 4.2).

A value that is decoded and encoded again gives the same bytes, so nothing can hide in a second way to write it:
trailing bytes, doubled keys, tags, lengths that are not the shortest.
"""

from __future__ import annotations

from typing import Any

import cbor2

from device_agent.errors import Refused
from device_agent.protocol import limits

DEPTH = 8
"""How deep a signed object nests."""

VALUE_DEPTH = limits.VALUE_DEPTH + 4
"""How deep arguments of a function nest, with what is around them."""

_PLAIN = (int, bytes, str, bool, float, type(None))


def encode(value: Any) -> bytes:
    """A plain value as CBOR; maps keep the order in which they were made."""
    return cbor2.dumps(value)


def decode(body: bytes, limit: int = limits.MESSAGE_BYTES, depth: int = DEPTH) -> Any:
    """A plain value from CBOR. Raises ``Refused`` (``oversized``, ``malformed``, ``not_canonical``)."""
    if len(body) > limit:
        raise Refused("oversized", f"{len(body)} bytes, at most {limit}")
    try:
        value = cbor2.loads(body, max_depth=depth)
        again = cbor2.dumps(value)
    # Whatever a decoder stumbles over, to us it is one thing: bytes that are no proof.
    except Exception as error:  # noqa: BLE001 - tags and text of the sender's choice reach half the standard library
        raise Refused("malformed", f"{type(error).__name__}: {str(error)[:200]}") from None
    if again != body:
        raise Refused("not_canonical", "the same value is written in another way")
    _check_plain(value)
    return value


def _check_plain(value: Any) -> None:
    if type(value) in _PLAIN:
        return
    if type(value) is list:
        for inner in value:
            _check_plain(inner)
    elif type(value) is dict:
        for key, inner in value.items():
            if type(key) not in (int, str):
                raise Refused("malformed", f"a key of type {type(key).__name__}")
            _check_plain(inner)
    else:
        raise Refused("malformed", f"a value of type {type(value).__name__}")
