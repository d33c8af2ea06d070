"""The private keys to which others seal for a device: the newest, the one of its certificate, and the one before.

A new key is on flash before the station hears of it, and the key before it stays as long as a job may live that was
sealed to it. So whatever moment the device is stopped at, it opens what is sealed to it. Times are wall seconds as the
site tells them.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.trust import codec
from device_agent.trust.keys import KemKey, new_private

MAGIC: Final = b"OSSEAL01"
DIGEST_BYTES: Final = 32
DAY: Final = 86_400
OVERLAP_SECONDS: Final = int(limits.JOB_EXPIRY_MAX_SECONDS) + DAY
"""How long the key before is kept: no job that was sealed to it lives longer."""

SPREAD: Final = 10
"""Devices that joined on one day change their keys within the last tenth of the interval, each on a day of its own."""


class SealingKeys:
    """Keys beside ``current``, the one of the certificate. ``owner`` is the did of the device.

    ``since`` is when the newest was made, or the first time that is known of it; 0 before that.
    """

    __slots__ = ("before", "current", "newest", "owner", "since", "told_wrong", "until")

    def __init__(self, current: KemKey, owner: bytes) -> None:
        self.owner: Final = owner
        self.current = current
        self.newest = current
        self.before: KemKey | None = None
        self.until = 0
        self.since = 0
        self.told_wrong = False
        """Whether somebody sealed to another key: the station is to be told again which one it is."""

    @property
    def all(self) -> tuple[KemKey, ...]:
        """What opens, most likely first."""
        keys = [self.current, self.newest, *([self.before] if self.before is not None else [])]
        return tuple({key.private: key for key in keys}.values())

    @property
    def pending(self) -> bool:
        """Whether there is a newer key than that of the certificate."""
        return self.newest.private != self.current.private

    def is_due(self, now: int, interval: int) -> bool:
        """Whether another key is due, ``interval`` seconds after the last; not while the one before is kept."""
        share = self.owner[0] / 256 / SPREAD
        return bool(self.since) and self.before is None and now >= self.since + interval * (1 - share)

    def renew(self, now: int) -> None:
        """Make another key. It counts when a certificate names it (``promote``)."""
        self.newest, self.since = KemKey(new_private()), now

    def promote(self, now: int) -> None:
        """A certificate names the newest key: the one before opens what was sealed to it for a while."""
        self.before, self.until = self.current, now + OVERLAP_SECONDS
        self.current = self.newest

    def let_go(self, now: int) -> bool:
        """Forget the key before when its time is over; whether there was one to forget."""
        if self.before is None or now < self.until:
            return False
        self.before, self.until = None, 0
        return True

    def to_bytes(self) -> bytes:
        """All but the current key, which stands in the identity; empty while there is nothing to remember."""
        if not self.since:
            return b""
        before = self.before.private if self.before is not None else b""
        body = codec.encode([self.owner, self.newest.private, before, self.until, self.since])
        return MAGIC + hashlib.sha256(body).digest() + body

    def restore(self, content: bytes) -> None:
        """Take what ``to_bytes`` gave, written before or after the identity was. Raises ``Refused``.

        Those of another device, whose identity was moved away, are left alone.
        """
        body = content[len(MAGIC) + DIGEST_BYTES :]
        if content[: len(MAGIC)] != MAGIC:
            raise Refused("malformed", "it does not begin like sealing keys")
        if hashlib.sha256(body).digest() != content[len(MAGIC) : len(MAGIC) + DIGEST_BYTES]:
            raise Refused("malformed", "its checksum is wrong")
        owner, newest, before, until, since = _parts(codec.decode(body))
        if owner != self.owner:
            return
        self.newest, self.until, self.since = KemKey(newest), until, since
        # A stop between this file and the identity: the key of the certificate is still the one before.
        self.before = KemKey(before) if before and before != self.current.private else None


def _parts(parts: Any) -> tuple[bytes, bytes, bytes, int, int]:
    kinds = [bytes, bytes, bytes, int, int]
    if type(parts) is not list or list(map(type, parts)) != kinds:
        raise Refused("malformed", "sealing keys are a did, two keys and two times")
    owner, newest, before, until, since = parts
    return owner, newest, before, until, since
