"""Tokens of the API: who asks where the kernel cannot say it. Only a hash is kept, so the store gives none away."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from device_agent.clock import Clock
from device_agent.errors import NotFound, PolicyRefused, UsageInvalid
from device_agent.parts import Part
from gateway.devices.policy import MAY, Role
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

PREFIX = "os1_"
TOKEN_BYTES = 32
TOKENS = 1000
DAYS_DEFAULT = 90
DAYS_MAX = 400
DAY_SECONDS = 86_400.0
USED_EVERY_SECONDS = 60.0
KEPT_SECONDS = 30 * DAY_SECONDS
"""How long an expired or revoked token is still listed."""

_PUT = (
    "INSERT INTO api_tokens (id, hash, user, role, made_by, made, expires, used, revoked)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass
class ApiToken:
    """One token. An empty ``role`` leaves it to the policy file, by the user's name. Times are wall seconds."""

    id: str
    hash: bytes
    user: str
    role: Role | None
    made_by: str
    made: float
    expires: float
    used: float | None = None
    revoked: float | None = None

    def view(self, now: float) -> dict[str, Any]:
        """As the API shows it."""
        state = "revoked" if self.revoked is not None else "expired" if now >= self.expires else "valid"
        return {
            "id": self.id,
            "user": self.user,
            "role": self.role,
            "state": state,
            "made_by": self.made_by,
            "made": self.made,
            "expires": self.expires,
            "used": self.used,
            "revoked": self.revoked,
        }


class ApiTokens(Part):
    """Makes, knows and revokes tokens."""

    name: ClassVar[str] = "api-tokens"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(self, *, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._tokens: dict[bytes, ApiToken] = {}
        self._used: dict[str, float] = {}
        self._touched = asyncio.Event()

    async def open(self) -> None:
        """Load the tokens, and let go of those that ended long ago."""
        before = self._clock.wall() - KEPT_SECONDS
        await self._writer.commit(
            [("DELETE FROM api_tokens WHERE min(expires, ifnull(revoked, expires)) < ?", [(before,)])]
        )
        for row in await self._reader.rows(
            "SELECT id, hash, user, role, made_by, made, expires, used, revoked FROM api_tokens"
        ):
            token = ApiToken(*row)
            token.role = token.role or None
            self._tokens[token.hash] = token
        self.spawn(self._keep_used(), "used")

    def known(self, text: str) -> ApiToken | None:
        """The valid token that this text is; its use is noted."""
        token = self._tokens.get(_hashed(text))
        now = self._clock.wall()
        if token is None or token.revoked is not None or now >= token.expires:
            return None
        if token.used is None or now - token.used >= USED_EVERY_SECONDS:
            token.used = self._used[token.id] = now
            self._touched.set()
        return token

    def holds(self, token_id: str) -> bool:
        """Whether a token that was valid still is."""
        token = self._named(token_id)
        return token is not None and token.revoked is None and self._clock.wall() < token.expires

    def views(self) -> list[dict[str, Any]]:
        """Every token, newest first."""
        now = self._clock.wall()
        return [token.view(now) for token in sorted(self._tokens.values(), key=lambda token: -token.made)]

    async def make(
        self, user: str, role: Role | None, seconds: float, made_by: str, beside: Sequence[Statement] = ()
    ) -> tuple[str, dict[str, Any]]:
        """A new token, whose text is known only now, and its view. Raises ``UsageInvalid`` and ``PolicyRefused``."""
        if not 0 < seconds <= DAYS_MAX * DAY_SECONDS:
            raise UsageInvalid(
                "a token's time is out of range",
                where="seconds",
                found=f"{seconds:g} s",
                allowed=f"more than 0 and at most {DAYS_MAX} days",
            )
        if role is not None and role not in MAY:
            raise UsageInvalid("there is no such role", where="role", found=str(role), allowed=", ".join(MAY))
        if len(self._tokens) >= TOKENS:
            raise PolicyRefused(
                "too many tokens",
                error_id="tokens.full",
                found=str(len(self._tokens)),
                allowed=f"at most {TOKENS}, with those that ended in the last 30 days",
                hint="outstation operators list",
            )
        text = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        now = self._clock.wall()
        hashed = _hashed(text)
        token = ApiToken(hashed.hex()[:12], hashed, user, role, made_by, now, now + seconds)
        row = (token.id, token.hash, user, role or "", made_by, now, token.expires, None, None)
        await self._writer.commit([(_PUT, [row]), *beside])
        self._tokens[token.hash] = token
        return text, token.view(now)

    async def revoke(self, token_id: str, beside: Sequence[Statement] = ()) -> dict[str, Any]:
        """End a token now. Raises ``NotFound``."""
        token = self._named(token_id)
        if token is None:
            raise NotFound(f"no token {token_id!r}", error_id="token.unknown", hint="outstation operators list")
        now = self._clock.wall()
        await self._writer.commit([("UPDATE api_tokens SET revoked = ? WHERE id = ?", [(now, token.id)]), *beside])
        token.revoked = now if token.revoked is None else token.revoked
        return token.view(now)

    def _named(self, token_id: str) -> ApiToken | None:
        return next((token for token in self._tokens.values() if token.id == token_id), None)

    async def _keep_used(self) -> None:
        while True:
            await self._touched.wait()
            self._touched.clear()
            used, self._used = self._used, {}
            try:
                await self._writer.commit(
                    [("UPDATE api_tokens SET used = ? WHERE id = ?", [(at, name) for name, at in used.items()])]
                )
            except StoreFailed as error:
                log.error("last use of tokens not written error=%s", error.found)


def _hashed(text: str) -> bytes:
    # Of 256 random bits, so there is nothing to guess and no need for a slow hash.
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
