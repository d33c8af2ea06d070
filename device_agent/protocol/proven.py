"""An item of a spool with its proof inside: the first field of the map, which stations before release 0.2 ignore. Pure.

The proof is over the item without this field, and over a manifest page without its mark of the final page, since each
station on the way says by itself when its answer is complete.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from device_agent.errors import Refused
from device_agent.protocol.messages import Manifest, decode_item, encode

PROOF_BYTES: Final = 1024
"""Largest proof of one item."""

_FIELD: Final = b"\xa5proof"
_BIN8, _BIN16, _MAP16 = 0xC4, 0xC5, 0xDE
_MANIFEST: Final = b"\xa4type\xa8manifest"
_FIXMAP_MOST: Final = 15


def with_proof(body: bytes, proof: bytes) -> bytes:
    """Put a proof into an item that has none. Raises ``Refused`` for bytes that are no item."""
    fields, start = _header(body)
    size = len(proof)
    length = bytes((_BIN8, size)) if size < 256 else bytes((_BIN16, size >> 8, size & 255))
    return _map_of(fields + 1) + _FIELD + length + proof + body[start:]


def split_proof(body: bytes) -> tuple[bytes, bytes]:
    """An item without its proof, and the proof; empty for an item that has none. Raises ``Refused``."""
    fields, start = _header(body)
    if not body.startswith(_FIELD, start):
        return body, b""
    place = start + len(_FIELD)
    kind = body[place] if place < len(body) else 0
    if kind == _BIN8:
        size, begin = int.from_bytes(body[place + 1 : place + 2], "big"), place + 2
    elif kind == _BIN16:
        size, begin = int.from_bytes(body[place + 1 : place + 3], "big"), place + 3
    else:
        raise Refused("malformed", "a proof is bytes")
    if size > PROOF_BYTES or begin + size > len(body):
        raise Refused("malformed", f"a proof of {size} bytes")
    return _map_of(fields - 1) + body[begin + size :], body[begin : begin + size]


def signed_form(body: bytes) -> bytes:
    """The bytes of an item that its proof is over. Raises ``Refused``."""
    _, start = _header(body)
    if body.startswith(_MANIFEST, start):
        page = decode_item(body)
        if isinstance(page, Manifest) and page.final:
            return encode(replace(page, final=False))
    return body


def _header(body: bytes) -> tuple[int, int]:
    """How many fields the map has, and where the first begins. Raises ``Refused``."""
    first = body[0] if body else 0
    if 0x80 <= first <= 0x8F:
        return first & 0x0F, 1
    if first == _MAP16 and len(body) >= 3:
        return int.from_bytes(body[1:3], "big"), 3
    raise Refused("malformed", "an item is a map")


def _map_of(fields: int) -> bytes:
    if 0 <= fields <= _FIXMAP_MOST:
        return bytes((0x80 | fields,))
    if not 0 <= fields < 2**16:
        raise Refused("malformed", f"an item of {fields} fields")
    return bytes((_MAP16,)) + fields.to_bytes(2, "big")
