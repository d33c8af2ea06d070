"""Who asked for a job, from the user that the job names."""

from __future__ import annotations

from gateway.devices.policy import Operator


def asker(user: str) -> Operator:
    """The operator at a master, or here. Behind the name stand the door, and on whose behalf it was asked."""
    name, _, rest = user.partition(" ")
    return Operator(name or "unknown", frozenset(), "above", asked_by_token=f"{rest} ".startswith("via api "))


def is_own(user: str, operator: Operator) -> bool:
    """Whether a user that was written at this station is this operator."""
    found = asker(user)
    return (found.name, found.by_token) == (operator.name, operator.by_token)
