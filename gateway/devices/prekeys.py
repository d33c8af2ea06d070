"""Prekeys: what devices seal the secret of a session to. A new one each day; after two days it is wiped.

Recorded traffic stays shut to whoever takes the disk later than that. With a prekey goes what is known of the openings
that used it: none of them can be opened any more.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.parts import Part
from device_agent.trust.keys import KemKey, new_private
from device_agent.trust.sessions import INSTANCE_BYTES, PREKEY_SECONDS, prekey_id, sign_prekey
from gateway.devices.authority import Authority
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

RENEW_SECONDS = 86_400.0
LOOK_SECONDS = 60.0
TELL_AGAIN_SECONDS = 5.0

_FORGET = "DELETE FROM openings WHERE prekey NOT IN (SELECT id FROM prekeys)"
"""An opening that was being taken while its prekey was wiped."""


@dataclass(frozen=True, slots=True)
class _Held:
    key: KemKey
    made: float


class Prekeys(Part):
    """The prekeys that count now; the newest is the one that devices are told."""

    name: ClassVar[str] = "prekeys"

    def __init__(self, *, site: str, authority: Authority, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._clock = clock
        self._told_again = -TELL_AGAIN_SECONDS
        self._site = site
        self._authority = authority
        self._writer = writer
        self._reader = reader
        self._held: dict[bytes, _Held] = {}
        self._instance = secrets.token_bytes(INSTANCE_BYTES)
        self._signed: tuple[tuple[bytes, bytes, bytes], bytes] | None = None
        self._on_change: Callable[[], None] = _nobody

    async def open(self) -> None:
        """Load what still counts, and make today's."""
        for private, made in await self._reader.rows("SELECT private, made FROM prekeys"):
            key = KemKey(private)
            self._held[prekey_id(key.public)] = _Held(key, made)
        await self._writer.commit([(_FORGET, [()])])
        await self.renew()
        # A station may only now have learned what time it is.
        self._authority.on_change(self._look)
        self.spawn(self._run(), "renew")

    def on_change(self, call: Callable[[], None]) -> None:
        """Call when devices must be told of another prekey."""
        self._on_change = call

    @property
    def body(self) -> bytes:
        """The newest prekey, signed by this site's key."""
        identity, held = self._newest()
        wanted = (identity, self._authority.signing.kid, self._instance)
        if self._signed is None or self._signed[0] != wanted:
            body = sign_prekey(
                self._authority.signing,
                site=self._site,
                public=held.key.public,
                issued=int(held.made),
                instance=self._instance,
            )
            self._signed = (wanted, body)
        return self._signed[1]

    def find(self, identity: bytes) -> KemKey | None:
        """The private half of a prekey that still counts."""
        held = self._held.get(identity)
        return held.key if held is not None and not _is_over(held, self._authority.now()) else None

    async def tell_again(self) -> None:
        """A device used a prekey that does not count: look which do, and say so again, now and then."""
        now = self._clock.monotonic()
        if now - self._told_again < TELL_AGAIN_SECONDS:
            return
        self._told_again = now
        await self._look()
        self._on_change()

    async def start_anew(self) -> None:
        """The clock was set: see which prekeys count, and let every device open another session."""
        self.renew_instance()
        await self._look()
        self._on_change()

    def renew_instance(self) -> None:
        """Let every device open another session, as after a start: this station may have missed their last words."""
        self._instance = secrets.token_bytes(INSTANCE_BYTES)

    async def renew(self) -> None:
        """Make a prekey when the newest is a day old, and wipe what is over. Raises ``StoreFailed``."""
        now = self._authority.now()
        over = [identity for identity, held in self._held.items() if _is_over(held, now)]
        fresh = [
            held for identity, held in self._held.items() if identity not in over and held.made > now - RENEW_SECONDS
        ]
        made: dict[bytes, _Held] = {}
        if not fresh:
            key = KemKey(new_private())
            made[prekey_id(key.public)] = _Held(key, float(int(now)))
        await self._writer.commit([*_keeping(made), *_wiping(over)], wipes=bool(over))
        before = max(self._held, key=lambda identity: self._held[identity].made, default=b"")
        self._held = {identity: held for identity, held in {**self._held, **made}.items() if identity not in over}
        if self._newest()[0] != before:
            # Also when the newest is an older one: the clock was ahead and was set right.
            self._on_change()

    def _newest(self) -> tuple[bytes, _Held]:
        return max(self._held.items(), key=lambda entry: entry[1].made)

    async def _look(self) -> None:
        try:
            await self.renew()
        except StoreFailed as error:
            log.error("prekeys not renewed error=%s", error.found)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._look()


def _is_over(held: _Held, now: float) -> bool:
    """Past its life; or made by a clock that was far ahead, which would make its life too long."""
    return not -RENEW_SECONDS < now - held.made < PREKEY_SECONDS


def _keeping(made: dict[bytes, _Held]) -> list[Statement]:
    rows = [(identity, held.key.private, held.made) for identity, held in made.items()]
    return [("INSERT INTO prekeys (id, private, made) VALUES (?, ?, ?)", rows)]


def _wiping(over: list[bytes]) -> list[Statement]:
    """Overwritten before it is deleted: a deleted row stays readable in its file until its place is needed."""
    rows = [(identity,) for identity in over]
    return [
        ("UPDATE prekeys SET private = zeroblob(32) WHERE id = ?", rows),
        ("DELETE FROM openings WHERE prekey = ?", rows),
        ("DELETE FROM prekeys WHERE id = ?", rows),
    ]


def _nobody() -> None:
    """Until somebody asks to be told."""
