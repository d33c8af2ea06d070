"""What opens the doors of SSH devices, sealed at rest: ChaCha20-Poly1305 (RFC 8439), keys by HKDF (RFC 5869).

Each secret has a salt of its own, and with it a key and a nonce of its own from the station's private key. It is bound
to its column and to the identity of its device, in which are site, name and pinned host keys: whoever can write to the
store can neither put one in another's place nor have one said to another host.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import Struct

from device_agent.errors import StationFailed
from device_agent.trust import codec
from device_agent.trust.hpke import derive

COLUMNS: Final = ("password", "private_key", "passphrase", "certificate")
NONCE_BYTES: Final = 16

_FORM: Final = b"\x01"
_INFO: Final = b"os1 ssh secret"
_SALT_BYTES: Final = 16
_KEY_BYTES, _AEAD_NONCE_BYTES = 32, 12


class SecretLost(StationFailed):
    """A secret of a device cannot be opened with the key that this station has now."""

    default_id = "ssh.secret_lost"


class Secret(Struct, frozen=True):
    """What opens one device's door; empty where it is not used. It is never shown, logged or told."""

    password: str = ""
    private_key: str = ""
    passphrase: str = ""
    certificate: str = ""

    def __repr__(self) -> str:
        """The names of what is there, and nothing of it."""
        return f"Secret({', '.join(column for column in COLUMNS if getattr(self, column))})"

    __str__ = __repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for whoever prints in colours."""
        return [(column, "…") for column in COLUMNS if getattr(self, column)]


class Sealed(Struct, frozen=True):
    """The same, sealed; empty where there is nothing."""

    password: bytes = b""
    private_key: bytes = b""
    passphrase: bytes = b""
    certificate: bytes = b""


class Sealing:
    """Seals and opens with a key derived from ``private``, the station's own."""

    def __init__(self, private: bytes) -> None:
        self._private = private

    def seal(self, identity: bytes, secret: Secret) -> Sealed:
        """Seal the secrets of the device with this identity (``ssh_device.identity``)."""
        return Sealed(*(self._seal(identity, column, getattr(secret, column)) for column in COLUMNS))

    def open(self, name: str, identity: bytes, sealed: Sealed) -> Secret:
        """Open a device's secrets. Raises ``SecretLost``."""
        return Secret(*(self._open(name, identity, column, getattr(sealed, column)) for column in COLUMNS))

    def _seal(self, identity: bytes, column: str, text: str) -> bytes:
        if not text:
            return b""
        salt = secrets.token_bytes(_SALT_BYTES)
        aead, once = self._aead(salt)
        return _FORM + salt + aead.encrypt(once, text.encode(), codec.encode([identity, column]))

    def _open(self, name: str, identity: bytes, column: str, sealed: bytes) -> str:
        if not sealed:
            return ""
        salt, body = sealed[1 : 1 + _SALT_BYTES], sealed[1 + _SALT_BYTES :]
        try:
            if sealed[:1] != _FORM:
                raise InvalidTag
            aead, once = self._aead(salt)
            return aead.decrypt(once, body, codec.encode([identity, column])).decode()
        except (InvalidTag, ValueError):
            raise SecretLost(
                f"the {column.replace('_', ' ')} of {name} cannot be opened with the key that this station has now",
                found="sealed with other keys than this station has now, or for other pinned host keys",
                hint=f"give it again: outstation devices set {name} --password-file FILE (or --key FILE)",
            ) from None

    def _aead(self, salt: bytes) -> tuple[ChaCha20Poly1305, bytes]:
        both = derive(self._private, salt, _INFO, _KEY_BYTES + _AEAD_NONCE_BYTES)
        return ChaCha20Poly1305(both[:_KEY_BYTES]), both[_KEY_BYTES:]
