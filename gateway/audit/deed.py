"""One row of the audit, before it is numbered."""

from __future__ import annotations

from dataclasses import dataclass

from device_agent.protocol.messages import AuditVerdict


@dataclass(frozen=True, kw_only=True)
class Deed:
    """One thing somebody asked for, and the answer.

    ``door`` is socket, api, above (a master) or device. ``action`` is a word like ``run``, ``keys.accept``; ``subject``
    what it was done to: a target, a device, a site, a key. ``why`` is the operator's reason, or that of a refusal.
    """

    user: str
    door: str
    action: str
    subject: str
    verdict: AuditVerdict
    why: str = ""
    jid: str = ""
    fun: str = ""
    arguments: str = ""
    times: int = 1
    """How many equal refusals this one row stands for."""
