"""Join tokens: each lets a few devices in by itself, for a while, and perhaps only those of one serial number.

The station must keep a token's secret to check the tag of whoever brings it; it is emptied as soon as nobody can need
it: the token is spent, expired or revoked, and every device that came by it has confirmed its answer.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from device_agent.errors import NotFound, PolicyRefused, Refused, UsageInvalid
from gateway.store.writer import Statement

ID_BYTES: Final = 8
SECRET_BYTES: Final = 16
SERIAL_CHARACTERS: Final = 64
TOKENS_MAX = 20_000
KEPT_SECONDS = 30 * 86_400.0
"""How long an ended token is still listed."""

LOAD = "SELECT id, secret, site, uses, left, serial, name, address, made, made_by, expires, revoked FROM join_tokens"
_ADD = (
    "INSERT INTO join_tokens (id, secret, site, uses, left, serial, name, address, made, made_by, expires, revoked)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_USE = "UPDATE join_tokens SET left = left - 1 WHERE id = ?"
_REVOKE = "UPDATE join_tokens SET revoked = ? WHERE id = ?"
_WIPE = "UPDATE join_tokens SET secret = x'' WHERE id = ?"
_DELETE = "DELETE FROM join_tokens WHERE id = ?"


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A token as the station keeps it. Times are wall seconds."""

    id: str
    secret: bytes = field(repr=False)
    site: str
    uses: int
    left: int
    serial: str
    name: str
    address: str
    made: float
    made_by: str
    expires: float
    revoked: float | None

    def ended(self, now: float) -> bool:
        """Whether no further device can come by it."""
        return self.left == 0 or self.revoked is not None or now >= self.expires

    def state(self, now: float) -> str:
        """In one word."""
        if self.revoked is not None:
            return "revoked"
        if self.left == 0:
            return "used"
        return "expired" if now >= self.expires else "open"

    def view(self, now: float) -> dict[str, Any]:
        """As the API shows it: never its secret."""
        return {
            "id": self.id,
            "state": self.state(now),
            "uses": self.uses,
            "left": self.left,
            "serial": self.serial,
            "name": self.name,
            "address": self.address,
            "made": self.made,
            "made_by": self.made_by,
            "expires": self.expires,
            "secret_kept": bool(self.secret),
        }


class JoinTokens:
    """Every token of this site. What it says is decided in memory; the statements make it true on disk."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._tokens: dict[str, MadeToken] = {}
        self._in_hand: Counter[str] = Counter()

    def load(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take the rows of ``LOAD``."""
        for row in rows:
            token = MadeToken(*row)
            self._tokens[token.id] = token

    def fresh(
        self, *, number: int, uses: int, serial: str, name: str, address: str, now: float, expires: float, by: str
    ) -> list[MadeToken]:
        """So many new tokens, not yet kept. Raises ``PolicyRefused`` when there are too many."""
        if len(self._tokens) + number > TOKENS_MAX:
            raise PolicyRefused(
                "this station keeps no more tokens",
                error_id="tokens.full",
                found=f"{len(self._tokens)} and {number} more",
                allowed=f"{TOKENS_MAX}",
                hint="outstation keys token list",
            )
        return [
            MadeToken(
                id=secrets.token_hex(ID_BYTES),
                secret=secrets.token_bytes(SECRET_BYTES),
                site=self._site,
                uses=uses,
                left=uses,
                serial=serial,
                name=name,
                address=address,
                made=now,
                made_by=by,
                expires=expires,
                revoked=None,
            )
            for _ in range(number)
        ]

    def adding(self, tokens: Sequence[MadeToken]) -> list[Statement]:
        """The statements that keep new tokens; commit them, then ``keep``."""
        return [(_ADD, [astuple(token) for token in tokens])]

    def keep(self, tokens: Iterable[MadeToken]) -> None:
        """These are on disk as they are."""
        self._tokens.update({token.id: token for token in tokens})

    def judge(self, wanted: bytes, now: float) -> MadeToken:
        """The token that a device names, if it may still be used. Raises ``Refused`` and says why not."""
        token = self._tokens.get(wanted.hex())
        if token is None or token.revoked is not None:
            gone = "was revoked" if token is not None else "is not known at this station"
            raise Refused("token_unknown", f"the token {wanted.hex()} {gone}")
        if token.site != self._site:
            raise Refused("token_other_site", f"the token {token.id} was made for site {token.site}")
        if token.left == 0:
            raise Refused("token_used", f"the token {token.id} was used {token.uses} times already")
        if now >= token.expires:
            raise Refused("token_expired", f"the token {token.id} has expired")
        return token

    @staticmethod
    def check_serial(token: MadeToken, serial: str) -> None:
        """Raise ``Refused`` unless the token is for any serial number, or for this one."""
        if token.serial and token.serial != serial:
            raise Refused("token_other_serial", f"the token {token.id} is for another serial number than {serial!r}")

    def secret(self, wanted: bytes) -> bytes | None:
        """The secret that an answer to this token's bearer is tagged with, while it is kept."""
        token = self._tokens.get(wanted.hex())
        return token.secret or None if token is not None else None

    def take(self, token: MadeToken) -> Statement:
        """Take one use, at once in memory; the statement does so on disk, or fails when none was left there."""
        current = self._tokens[token.id]
        self._tokens[token.id] = replace(current, left=current.left - 1)
        self._in_hand[token.id] += 1
        return (_USE, [(token.id,)])

    def taken(self, token: MadeToken, *, on_disk: bool) -> None:
        """How the statement of ``take`` ended."""
        self._in_hand[token.id] -= 1
        self._in_hand += Counter()
        if not on_disk:
            current = self._tokens[token.id]
            self._tokens[token.id] = replace(current, left=current.left + 1)

    def exhausted(self, token: MadeToken) -> None:
        """The disk says that no use was left."""
        self._tokens[token.id] = replace(self._tokens[token.id], left=0)

    def revoking(self, wanted: str, now: float) -> tuple[MadeToken, Statement]:
        """A token as it is when it is revoked, and the statement. Raises ``NotFound`` and ``UsageInvalid``."""
        token = self._tokens.get(wanted.lower())
        if token is None:
            raise NotFound(f"no token {wanted[:40]!r}", error_id="token.unknown", hint="outstation keys token list")
        if token.ended(now):
            raise UsageInvalid(
                f"the token {token.id} is {token.state(now)}", error_id="token.ended", hint="outstation keys token list"
            )
        return replace(token, revoked=now), (_REVOKE, [(now, token.id)])

    def open_count(self, now: float) -> int:
        """How many can still let a device in, or are just letting one in: it is not told yet."""
        return sum(1 for token in self._tokens.values() if token.id in self._in_hand or not token.ended(now))

    def views(self, now: float) -> list[dict[str, Any]]:
        """Every token, the newest first."""
        return [token.view(now) for token in sorted(self._tokens.values(), key=lambda token: (-token.made, token.id))]

    def tidying(self, needed: Collection[str], now: float) -> tuple[list[MadeToken], list[Statement]]:
        """Tokens whose secret nobody can need any more, and statements that empty it and let old tokens go."""
        ended = [
            token
            for token in self._tokens.values()
            if token.ended(now) and token.id not in needed and token.id not in self._in_hand
        ]
        wiped = [replace(token, secret=b"") for token in ended if token.secret]
        gone = [token for token in ended if max(token.expires, token.revoked or 0.0) + KEPT_SECONDS < now]
        return wiped, [
            (_WIPE, [(token.id,) for token in wiped]),
            (_DELETE, [(token.id,) for token in gone]),
        ]

    def tidied(self, wiped: Iterable[MadeToken], now: float) -> None:
        """What ``tidying`` asked for is on disk."""
        self.keep(wiped)
        for token in list(self._tokens.values()):
            if not token.secret and max(token.expires, token.revoked or 0.0) + KEPT_SECONDS < now:
                del self._tokens[token.id]
