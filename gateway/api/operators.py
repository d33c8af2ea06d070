"""Operators in the API: who one is at this door, and the tokens of those who come by the TLS port."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.api.operation import Answer, Asked, Operation
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.api_tokens import DAY_SECONDS, DAYS_DEFAULT, ApiTokens
from gateway.devices.policy import MAY, NEED_WORDS, Role
from gateway.devices.policy_file import PolicyHolder

UserName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$(?!\n)")]


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token for a user. Without a role the policy file decides by the name, whenever it is used."""

    user: UserName
    role: Role | None = None
    seconds: float = DAYS_DEFAULT * DAY_SECONDS


class OperatorsApi:
    """Operations on operators."""

    def __init__(self, *, holder: PolicyHolder, tokens: ApiTokens, audit: AuditBook) -> None:
        self._holder = holder
        self._tokens = tokens
        self._audit = audit

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/operators/me", "Who asks, and what he may do", self._me),
            Operation("GET", "/operators/tokens", "Tokens of the API, newest first", self._list, needs="admin"),
            Operation(
                "POST",
                "/operators/tokens",
                "Make a token; its text is said this once",
                self._make,
                body=TokenRequest,
                status=201,
                needs="admin",
                action="operators.new",
                own_row=True,
            ),
            Operation(
                "POST",
                "/operators/tokens/{id}/revoke",
                "End a token now",
                self._revoke,
                needs="admin",
                action="operators.revoke",
                own_row=True,
            ),
        ]

    async def _me(self, asked: Asked) -> Answer:
        operator = asked.operator
        return {
            "name": operator.name,
            "door": operator.door,
            "roles": sorted(operator.roles),
            "groups": sorted(operator.groups),
            "may": [need for need in NEED_WORDS if operator.may(need)],
            "policy": self._holder.policy.source or None,
            "all_roles": {role: sorted(needs) for role, needs in MAY.items()},
        }

    async def _list(self, _: Asked) -> Answer:
        return {"tokens": self._tokens.views()}

    async def _make(self, asked: Asked) -> Answer:
        wanted: TokenRequest = asked.body
        deed = self._deed(asked, "operators.new", f"{wanted.user} {wanted.role or 'by policy'}")
        text, view = await self._tokens.make(
            wanted.user, wanted.role, wanted.seconds, str(asked.operator), self._audit.statements([deed])
        )
        self._audit.written()
        return {**view, "token": text}

    async def _revoke(self, asked: Asked) -> Answer:
        statements = self._audit.statements([self._deed(asked, "operators.revoke", asked.path["id"])])
        view = await self._tokens.revoke(asked.path["id"], statements)
        self._audit.written()
        return view

    @staticmethod
    def _deed(asked: Asked, action: str, subject: str) -> Deed:
        return Deed(user=asked.user, door=asked.operator.door, action=action, subject=subject, verdict="allow")
