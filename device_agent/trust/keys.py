"""Keys and their names: identity keys (Ed25519, RFC 8032), sealing keys (X25519, RFC 7748), and what people compare.

The identity is the signing key; the sealing key is rotated under it. Two keys, not one turned into the other: that is
not offered by the library, breaks key separation, and would tie the rotation of one to the other.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from device_agent.errors import Refused

PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
DID_BYTES: Final = 16
KID_BYTES: Final = 8
FINGERPRINT_CHARACTERS: Final = 16
DID_PATTERN = r"^[a-z2-7]{26}$(?!\n)"

_did_text = re.compile(DID_PATTERN)


def did(public: bytes) -> bytes:
    """The identity that a signing key stands for: 16 bytes."""
    return hashlib.sha256(b"os1 id\0" + public).digest()[:DID_BYTES]


def kid(public: bytes) -> bytes:
    """How a proof names its signer: 8 bytes, a hint; the signature decides."""
    return hashlib.sha256(b"os1 id\0" + public).digest()[:KID_BYTES]


def did_text(identity: bytes) -> str:
    """An identity as it stands in topics and user names: 26 characters of base32."""
    return base64.b32encode(identity).decode("ascii").rstrip("=").lower()


def did_from_text(text: str) -> bytes:
    """The identity in a topic. Raises ``Refused``."""
    if not _did_text.match(text):
        raise Refused("bad_identity", text[:40])
    identity = base64.b32decode(text.upper() + "======")
    if did_text(identity) != text:
        raise Refused("bad_identity", text)
    return identity


def fingerprint(public: bytes) -> str:
    """What a person compares: 80 bits as 4 groups of 4 base32 characters. Fewer could be searched for."""
    digest = hashlib.sha256(b"os1 id\0" + public).digest()[:10]
    text = base64.b32encode(digest).decode("ascii").lower()
    return "-".join(text[place : place + 4] for place in range(0, FINGERPRINT_CHARACTERS, 4))


def same_fingerprint(typed: str, shown: str) -> bool:
    """Whether what somebody typed is this fingerprint; case, spaces and dashes do not matter."""
    return re.sub(r"[\s-]", "", typed).lower() == shown.replace("-", "")


class SigningKey:
    """A private identity key."""

    __slots__ = ("_key", "did", "kid", "private", "public")

    def __init__(self, private: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self.private: Final = private
        self.public: Final = self._key.public_key().public_bytes_raw()
        self.did: Final = did(self.public)
        self.kid: Final = kid(self.public)

    def sign(self, content: bytes) -> bytes:
        """A signature of 64 bytes."""
        return self._key.sign(content)


class KemKey:
    """A private key that others seal to."""

    __slots__ = ("private", "private_key", "public")

    def __init__(self, private: bytes) -> None:
        self.private_key: Final = X25519PrivateKey.from_private_bytes(private)
        self.private: Final = private
        self.public: Final = self.private_key.public_key().public_bytes_raw()


def new_private() -> bytes:
    """A fresh private key for either kind, from the system's randomness."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def verify(public: bytes, signature: bytes, content: bytes) -> None:
    """Check a signature. Raises ``Refused`` (``bad_signature``)."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        raise Refused("bad_signature") from None


def kem_public(public: bytes) -> X25519PublicKey:
    """The key to seal to. Raises ``Refused`` for bytes that are none."""
    try:
        return X25519PublicKey.from_public_bytes(public)
    except ValueError:
        raise Refused("bad_key", f"{len(public)} bytes are no X25519 key") from None
