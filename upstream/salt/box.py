"""The symmetric box of Salt: AES-192-CBC, then HMAC-SHA256 over what was encrypted, checked before opening."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from device_agent.errors import Refused

AES_BYTES: Final = 24
MAC_BYTES: Final = 32
_BLOCK: Final = 16
_MARK: Final = b"pickle::"
"""Before what is in a box; the name is history, it is MessagePack."""

NONCE_CHARACTERS: Final = 32


def new_nonce() -> str:
    """32 hex characters that nobody guesses."""
    return secrets.token_hex(NONCE_CHARACTERS // 2)


class Box:
    """Seals and opens under one key. Raises ``Refused`` (``malformed``) for a text that is no key."""

    def __init__(self, key: str) -> None:
        try:
            both = base64.b64decode("".join(key.split()).encode("ascii", "replace"), validate=True)
        except binascii.Error:
            both = b""
        if len(both) != AES_BYTES + MAC_BYTES:
            raise Refused("malformed", "the key of a box has another length")
        self.key = key
        """Its text, by which two are told apart."""
        self._aes, self._mac = both[:AES_BYTES], both[AES_BYTES:]

    def seal(self, body: bytes, nonce: str = "") -> bytes:
        """What only who has the key can open or have made."""
        padder = PKCS7(_BLOCK * 8).padder()
        padded = padder.update(_MARK + nonce.encode("ascii") + body) + padder.finalize()
        start = os.urandom(_BLOCK)
        encryptor = Cipher(algorithms.AES(self._aes), modes.CBC(start)).encryptor()
        sealed = start + encryptor.update(padded) + encryptor.finalize()
        return sealed + hmac.digest(self._mac, sealed, hashlib.sha256)

    def open(self, blob: bytes, nonce: str = "") -> bytes:
        """What was sealed, with this nonce in front if one is given.

        Raises ``Refused``: ``malformed``; ``bad_mac`` when another key made it or it was changed; ``wrong_nonce``.
        """
        sealed, mac = blob[:-MAC_BYTES], blob[-MAC_BYTES:]
        if len(sealed) < 2 * _BLOCK or len(sealed) % _BLOCK:
            raise Refused("malformed", f"{len(blob)} bytes are no box")
        if not hmac.compare_digest(mac, hmac.digest(self._mac, sealed, hashlib.sha256)):
            raise Refused("bad_mac", "a box was changed, or sealed with another key")
        decryptor = Cipher(algorithms.AES(self._aes), modes.CBC(sealed[:_BLOCK])).decryptor()
        padded = decryptor.update(sealed[_BLOCK:]) + decryptor.finalize()
        unpadder = PKCS7(_BLOCK * 8).unpadder()
        try:
            body = unpadder.update(padded) + unpadder.finalize()
        except ValueError:
            raise Refused("malformed", "a box that is not padded") from None
        if not body.startswith(_MARK):
            raise Refused("malformed", "a box without its mark")
        body = body[len(_MARK) :]
        said = nonce.encode("ascii")
        if not hmac.compare_digest(body[: len(said)], said):
            raise Refused("wrong_nonce", "an answer to another question")
        return body[len(said) :]
