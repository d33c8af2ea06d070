"""What a policy refuses of a function whatever its arguments, its target and the hour are. Pure."""

from __future__ import annotations

from device_agent.trust.reach import can_cover
from gateway.devices.policy import NEED_WORDS, Deny, Operator, Policy, Rule, granted_words


def denied_by_name(policy: Policy, operator: Operator, fun: str, *, can_wait: bool) -> Deny | None:
    """Return why the rules for operators let no call of a function through; None if a rule can let one through.

    Args:
        policy: With rules for operators. Without them the least arguments decide: ask ``Policy.judge``.
        operator: Who asks, by another way than from above.
        fun: The function, as rules name it.
        can_wait: Whether the call can wait for a release. If not, a rule with ``hold`` refuses it.
    """
    if "admin" in operator.roles:
        return None
    if not operator.may("run"):
        return Deny(f"{operator.name} may not {NEED_WORDS['run']}", operator.role_words())
    rules = policy.operator or ()
    fitting = [rule for rule in rules if rule.is_for(operator) and _can_grant(rule, fun)]
    if not fitting:
        return Deny(f"no rule grants {fun}", granted_words(rules, operator))
    if not can_wait and all(rule.hold for rule in fitting):
        return Deny("a call of the station itself cannot wait for a release", f"a rule for {fun} without hold")
    return None


def _can_grant(rule: Rule, fun: str) -> bool:
    return any(can_cover(term, fun) for term in rule.functions)
