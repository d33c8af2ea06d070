"""Who is asking, at each door: the kernel says it at the unix socket, a token at the TLS port. Nobody else gets in."""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import pwd
from collections.abc import Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers

from device_agent.clock import Clock
from device_agent.errors import PolicyRefused, StationFailed
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.api_tokens import ApiTokens
from gateway.devices.policy import Need, Operator, Policy
from gateway.metrics import Metrics
from upstream.networks import network_of

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]

GROUPS_SECONDS = 10.0
"""How long the groups of a user are remembered: the user database may be far away."""

FAILURES = 10
FAILURES_SECONDS = 60.0
"""So many wrong tokens of one address in so many seconds are told apart; more are turned away unread."""

ADDRESSES = 1000
"""Addresses whose wrong tokens are counted, and users whose groups are remembered, at once."""

NOBODY = Operator("unknown", frozenset())


class TokenRefused(PolicyRefused):
    """No token, or none that counts."""

    default_id = "operator.unknown"


class TooManyFailures(PolicyRefused):
    """Wrong tokens, again and again."""

    default_id = "operator.too_many_failures"


class TooManyConnections(PolicyRefused):
    """The share of a user, or of an address, is used up."""

    default_id = "api.too_many_connections"


class GroupsUnknown(StationFailed):
    """The user database of this machine does not answer, so nobody knows what the groups of a user grant."""

    default_id = "api.groups_unknown"


class Door:
    """Tells who asks, and notes who was turned away. Without tokens nobody comes in by the TLS port."""

    def __init__(
        self,
        policy: Callable[[], Policy],
        *,
        tokens: ApiTokens | None = None,
        audit: AuditBook | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        site: str = "",
    ) -> None:
        self._policy = policy
        self.site = site
        """The name of this station."""
        self._tokens = tokens
        self._audit = audit
        self._metrics = metrics
        self._clock = clock or Clock()
        self._groups: dict[int, tuple[float, frozenset[str]]] = {}
        self._failures: dict[str, tuple[float, int]] = {}

    @property
    def policy(self) -> Policy:
        """The policy that counts now."""
        return self._policy()

    async def at_socket(self, scope: Scope) -> Operator:
        """The user at the other end of the unix socket; the server's protocol put it in the place of an address.

        Raises ``GroupsUnknown``, except for who is an admin by name.
        """
        name, user = scope["client"]
        policy = self._policy()
        groups = frozenset[str]()
        if policy.groups or policy.operator:
            try:
                groups = await self._groups_of(user)
            except GroupsUnknown:
                if not Operator(name, policy.roles(name, groups)).may("admin"):
                    raise
        return Operator(name, policy.roles(name, groups), "socket", groups)

    def is_admin(self, name: str, user: int) -> bool | None:
        """Whether a user of this machine is an admin; None when its groups must be looked up first."""
        policy = self._policy()
        if Operator(name, policy.roles(name, frozenset())).may("admin"):
            return True
        if not policy.groups:
            return False
        known = self._groups.get(user)
        if known is None or self._clock.monotonic() - known[0] >= GROUPS_SECONDS:
            return None
        return Operator(name, policy.roles(name, known[1])).may("admin")

    def turned_away(self, holder: str) -> None:
        """Count a connection for which there was no place."""
        if self._metrics is not None:
            self._metrics.refused("api", "too_many_connections", holder)

    async def at_port(self, scope: Scope) -> Operator:
        """Whose token it is. Raises ``TokenRefused`` and ``TooManyFailures``."""
        address = str(scope["client"][0]) if scope.get("client") else "unknown"
        kind, _, text = Headers(scope=scope).get("authorization", "").partition(" ")
        token = self._tokens.known(text.strip()) if self._tokens is not None and kind.lower() == "bearer" else None
        # A token that counts is let in whatever else its address did: others may stand behind the same one.
        if token is not None:
            roles = self._policy().token_roles(token.user) if token.role is None else frozenset({token.role})
            return Operator(token.user, roles, "api", token=token.id)
        raise await self._failed(address, "no token" if not text else "a token that does not count")

    def still_may(self, operator: Operator, need: Need) -> bool:
        """Whether who was let in would be let in now: a stream outlives tokens and policies."""
        if operator.token and (self._tokens is None or not self._tokens.holds(operator.token)):
            return False
        if operator.token or operator is NOBODY:
            return operator.may(need)
        return Operator(operator.name, self._policy().roles(operator.name, operator.groups)).may(need)

    async def note(self, deed: Deed) -> None:
        """Keep what was allowed."""
        if self._audit is not None:
            await self._audit.write([deed])

    async def note_denied(self, deed: Deed) -> None:
        """Count what was denied, and keep it; equal refusals of one user share a row that says how many they were."""
        if self._metrics is not None:
            self._metrics.refused("api", "not_allowed", deed.user, deed.action)
        if self._audit is not None:
            await self._audit.refused(deed)

    async def _failed(self, address: str, what: str) -> PolicyRefused:
        now = self._clock.monotonic()
        network = network_of(address)
        since, count = self._failures.pop(network, (now, 0))
        if now - since >= FAILURES_SECONDS:
            since, count = now, 0
        self._failures[network] = (since, count + 1)
        _bound(self._failures)
        reason = "no_token" if what == "no token" else "wrong_token"
        if count >= FAILURES:
            if self._metrics is not None:
                self._metrics.refused("api", "too_many_failures", address)
            return TooManyFailures(
                "too many wrong tokens from this address",
                found=f"{count + 1} in {FAILURES_SECONDS:.0f} s",
                allowed=f"{FAILURES} in {FAILURES_SECONDS:.0f} s",
                hint="wait a minute, then come with a token: outstation operators new USER (on the station)",
            )
        if self._metrics is not None:
            self._metrics.refused("api", reason, address)
        if self._audit is not None:
            deed = Deed(user="unknown", door="api", action="enter", subject=address, verdict="deny", why=what)
            await self._audit.refused(deed)
        return TokenRefused(
            "this station does not know who is asking",
            found=what,
            allowed="Authorization: Bearer TOKEN, with a token that is neither expired nor revoked",
            hint="outstation operators new USER --role ROLE (on the station, as an admin)",
        )

    async def _groups_of(self, user: int) -> frozenset[str]:
        now = self._clock.monotonic()
        known = self._groups.get(user)
        if known is not None and now - known[0] < GROUPS_SECONDS:
            return known[1]
        try:
            groups = await asyncio.to_thread(unix_groups, user)
        except (OSError, RuntimeError) as error:
            # Also when no thread can be started.
            log.warning("the groups of a user are not known user=%d error=%s", user, error)
            raise GroupsUnknown(
                "the user database of this machine does not answer",
                found=f"the groups of user {user}: {error}",
                hint="ask again; if it stays so: id USER (on the gateway), outstation check",
            ) from None
        self._groups[user] = (now, groups)
        _bound(self._groups)
        return groups


def unix_groups(user: int) -> frozenset[str]:
    """The names of the groups of a user of this machine; none for a user without a name."""
    names: set[str] = set()
    try:
        entry = pwd.getpwuid(user)
    except KeyError:
        return frozenset()
    for group in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            names.add(grp.getgrgid(group).gr_name)
        except KeyError:
            continue
    return frozenset(names)


def _bound(remembered: dict[Any, Any]) -> None:
    """Forget the oldest, so that nobody fills the memory with made-up names."""
    if len(remembered) > ADDRESSES:
        del remembered[next(iter(remembered))]
