"""Claims whose last one is sealed, and the bytes before it that the seal binds.

What is bound is a piece of the payload as it was signed and received, never a map that was encoded again: two encoders
that differ in one byte would otherwise bind two different things. The sealed claim is therefore the last of the map.
"""

from __future__ import annotations

from typing import Any

from device_agent.errors import Refused
from device_agent.trust import codec
from device_agent.trust.claims import CT, take

_LABEL = codec.encode(CT)


def header_bytes(claims: dict[int, Any]) -> bytes:
    """What a seal under these claims, which are all but the sealed one, has to bind."""
    return codec.encode({**claims, CT: b""})[: -len(_LABEL) - 1]


def take_sealed(claims: dict[int, Any], payload: bytes) -> tuple[bytes, bytes]:
    """The bytes that the seal binds, and what is sealed. Raises ``Refused``."""
    sealed = take(claims, CT, bytes)
    tail = _LABEL + codec.encode(sealed)
    if next(reversed(claims)) != CT or not payload.endswith(tail):
        raise Refused("malformed", "the sealed claim is not the last one")
    return payload[: -len(tail)], sealed
