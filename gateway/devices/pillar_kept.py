"""Pillar that was told from elsewhere, kept for when it cannot be told again; sealed with the station's key.

ChaCha20-Poly1305 (RFC 8439), keys by HKDF (RFC 5869), a salt for each; bound to its source, its site and its device, so
that nobody who can write to the store puts one device's in another's place.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import Struct

from device_agent.clock import Clock
from device_agent.trust import codec
from device_agent.trust.hpke import derive
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

_INFO: Final = b"os1 pillar kept"
_FORM: Final = b"\x01"
_SALT_BYTES, _KEY_BYTES, _NONCE_BYTES = 16, 32, 12
_PUT: Final = "INSERT OR REPLACE INTO pillar_kept (source, site, device, sealed, told) VALUES (?, ?, ?, ?, ?)"


def forgetting(devices: Sequence[tuple[str, str]]) -> Statement:
    """What drops all that is kept of these, by site and name."""
    return ("DELETE FROM pillar_kept WHERE site = ? AND device = ?", list(devices))


class Kept(Struct, frozen=True):
    """What was told, and the wall seconds when."""

    body: bytes
    told: float

    def __repr__(self) -> str:
        """Nothing of what was told."""
        return f"Kept({len(self.body)} bytes)"


class PillarKept:
    """Seals, keeps and opens; ``private`` is the station's own key."""

    def __init__(self, private: Callable[[], bytes], *, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._private = private
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def keep(self, source: str, site: str, device: str, body: bytes) -> None:
        """Keep the newest. That it could not be kept is no reason not to serve it now."""
        salt = secrets.token_bytes(_SALT_BYTES)
        aead, once = self._aead(salt)
        sealed = _FORM + salt + aead.encrypt(once, body, codec.encode([source, site, device]))
        try:
            await self._writer.commit([(_PUT, [(source, site, device, sealed, self._clock.wall())])])
        except StoreFailed as error:
            log.error("pillar not kept device=%s error=%s", device, error.found)

    async def find(self, source: str, site: str, device: str) -> Kept | None:
        """What is kept; None where there is nothing that opens."""
        rows = await self._reader.rows(
            "SELECT sealed, told FROM pillar_kept WHERE source = ? AND site = ? AND device = ?", (source, site, device)
        )
        for sealed, told in rows:
            salt, body = sealed[1 : 1 + _SALT_BYTES], sealed[1 + _SALT_BYTES :]
            try:
                if sealed[:1] != _FORM:
                    raise InvalidTag
                aead, once = self._aead(salt)
                return Kept(aead.decrypt(once, body, codec.encode([source, site, device])), told)
            except (InvalidTag, ValueError):
                log.error("kept pillar does not open device=%s: it was sealed with another key", device)
        return None

    async def forget_others(self, belongs: Callable[[str, str], bool]) -> None:
        """Drop what is kept of devices (site and name) that are none any more."""
        rows = await self._reader.rows("SELECT DISTINCT site, device FROM pillar_kept")
        gone = [(site, device) for site, device in rows if not belongs(site, device)]
        if gone:
            await self._writer.commit([forgetting(gone)])

    def _aead(self, salt: bytes) -> tuple[ChaCha20Poly1305, bytes]:
        both = derive(self._private(), salt, _INFO, _KEY_BYTES + _NONCE_BYTES)
        return ChaCha20Poly1305(both[:_KEY_BYTES]), both[_KEY_BYTES:]
