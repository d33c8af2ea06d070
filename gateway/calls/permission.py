"""A call is held to the policy: the role of who asks, and where there are rules, one for the function by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from device_agent.clock import Clock
from device_agent.errors import PolicyRefused
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.calls.call import Kind, shown
from gateway.calls.functions import Function
from gateway.devices.policy import Deny, Hold, Operator, Policy, Verdict, call_text, not_allowed
from gateway.devices.policy_by_name import denied_by_name
from gateway.metrics import Metrics
from gateway.store.writer import Statement

REASON_CHARACTERS = 500


class CallPermission:
    """Asks the policy about calls, and keeps what it said. What only looks leaves no row, as elsewhere."""

    def __init__(
        self, *, site: str, policy: Callable[[], Policy], audit: AuditBook, metrics: Metrics, clock: Clock
    ) -> None:
        self._site = site
        self._policy = policy
        self._audit = audit
        self._metrics = metrics
        self._clock = clock

    async def calling(
        self,
        operator: Operator,
        user: str,
        kind: Kind,
        function: Function,
        arg: Sequence[Any],
        kwarg: Mapping[str, Any],
        jid: str,
        why: str,
    ) -> list[Statement]:
        """The audit row of a call. Raises ``PolicyRefused``."""
        said = f"{kind}.{function.name}"
        deed = Deed(
            user=user,
            door=operator.door,
            action=kind,
            subject=self._site,
            verdict="allow",
            why=why,
            jid=jid,
            fun=said,
            arguments=call_text("", arg, shown(kwarg)).strip(),
        )
        refused = self.refusal(operator, said, function, arg, kwarg)
        if refused is not None:
            self._metrics.add("calls_denied")
            row = {"verdict": "deny", "jid": "", "why": f"{refused.what}; {why}" if why else refused.what}
            await self._audit.refused(Deed(**{**vars(deed), **row}))
            raise refused
        return [] if function.need == "view" else self._audit.statements([deed])

    def refusal(
        self,
        operator: Operator,
        said: str,
        function: Function,
        arg: Sequence[Any],
        kwarg: Mapping[str, Any],
        *,
        by_name: bool = False,
    ) -> PolicyRefused | None:
        """Why a call is refused; None for one that is allowed.

        ``by_name``: its arguments are not known, so it is refused if no rule can let it through.
        """
        policy = self._policy()
        asked = call_text(said, arg, shown(kwarg))[:REASON_CHARACTERS]
        if function.refused:
            return PolicyRefused(
                f"{said} is not supported: {function.refused}", error_id="calls.unsupported", found=asked
            )
        if not operator.may(function.need):
            return not_allowed(policy, operator, function.need, asked)
        # Without rules a role is enough; and rules are about what operators run, not about what all may look at.
        if not function.ruled or function.need != "run" or policy.operator is None:
            return None
        verdict: Verdict | None
        if by_name:
            verdict = denied_by_name(policy, operator, said, can_wait=False)
        else:
            verdict = policy.judge(operator, said, list(arg), dict(kwarg), [], [self._site], self._clock.wall())
        if isinstance(verdict, Hold):
            verdict = Deny("a call of the station itself cannot wait for a release", f"a rule for {said} without hold")
        if not isinstance(verdict, Deny):
            return None
        return PolicyRefused(
            f"{operator.name} may not do this: {verdict.why}",
            error_id="policy.rule",
            where=f"role {', '.join(sorted(operator.roles))}",
            found=asked,
            allowed=verdict.allowed or operator.role_words(),
            hint=f"ask an admin to run it, or for a rule in {policy.source} that allows {said}",
        )
