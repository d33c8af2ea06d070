"""ANSI X9.31 signatures, as Salt uses them in two places and no library offers: the one construction of our own.

``head | filler | data | CC`` as one number the size of the modulus. With room the head is ``6B`` and the filler ``BB``
as often as it fits, then ``BA``; without, the head is ``6A`` alone. There is no hash in it: what is signed is short.
The signature is the smaller of s and n - s; who opens it knows the right one by its last four bits.
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers, RSAPublicNumbers

from device_agent.errors import Refused

_HEAD, _HEAD_ALONE, _FILLER, _FILLED, _TRAILER = 0x6B, 0x6A, 0xBB, 0xBA, 0xCC
_AROUND: Final = 2
"""Head and trailer."""


def make(key: RSAPrivateNumbers, data: bytes) -> bytes:
    """The signature over ``data``, which is at most two bytes shorter than the modulus: ``ValueError`` if not.

    It takes as long as the key makes it: only for what is signed once, and never for what somebody else chose.
    """
    modulus = key.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    room = size - len(data) - _AROUND
    if room < 0:
        raise ValueError(f"{len(data)} bytes do not fit into a signature of {size}")
    head = bytes([_HEAD] + [_FILLER] * (room - 1) + [_FILLED]) if room else bytes([_HEAD_ALONE])
    block = int.from_bytes(head + data + bytes([_TRAILER]), "big")
    signature = pow(block, key.d, modulus)
    return min(signature, modulus - signature).to_bytes(size, "big")


def opened(key: RSAPublicNumbers, signature: bytes) -> bytes:
    """What was signed. Raises ``Refused`` (``bad_signature``)."""
    size = (key.n.bit_length() + 7) // 8
    number = int.from_bytes(signature, "big") if len(signature) == size else key.n
    if number >= key.n:
        raise Refused("bad_signature", "it is no number of this key")
    found = pow(number, key.e, key.n)
    if found & 0x0F != _TRAILER & 0x0F:
        found = key.n - found
    block = found.to_bytes(size, "big")
    if block[-1] != _TRAILER:
        raise Refused("bad_signature", "it does not end as it should")
    if block[0] == _HEAD_ALONE:
        return block[1:-1]
    after = block[1:-1].lstrip(bytes([_FILLER]))
    if block[0] != _HEAD or after[:1] != bytes([_FILLED]):
        raise Refused("bad_signature", "it does not begin as it should")
    return after[1:]
