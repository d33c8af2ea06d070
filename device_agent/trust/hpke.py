"""Sealing to one key: HPKE base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305 (RFC 9180).

Base mode is right here: who sealed it is said by a signature around or inside what is sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, hpke
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from device_agent.errors import Refused
from device_agent.trust.keys import KemKey, kem_public

OVERHEAD_BYTES: Final = 32 + 16
"""The encapsulated key and the tag."""

_suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


def seal(public: bytes, info: bytes, plaintext: bytes) -> bytes:
    """Seal to a public key; ``info`` binds it to its place. Raises ``Refused`` for bytes that are no key."""
    try:
        return _suite.encrypt(plaintext, kem_public(public), info=info)
    except ValueError as error:
        # A key of small order gives an exchange of zeros.
        raise Refused("bad_key", str(error)) from None


def open_sealed(key: KemKey, info: bytes, sealed: bytes) -> bytes:
    """Open what was sealed to a key. Raises ``Refused`` (``not_sealed_to_us``)."""
    try:
        return _suite.decrypt(sealed, key.private_key, info=info)
    except (InvalidTag, ValueError):
        raise Refused("not_sealed_to_us", f"{len(sealed)} bytes") from None


def open_with_any(keys: Sequence[KemKey], info: bytes, sealed: bytes) -> bytes:
    """Open what was sealed to one of these keys. Raises ``Refused`` (``not_sealed_to_us``)."""
    for key in keys[:-1]:
        with suppress(Refused):
            return open_sealed(key, info, sealed)
    return open_sealed(keys[-1], info, sealed)


def derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """HKDF-SHA256 (RFC 5869)."""
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)
