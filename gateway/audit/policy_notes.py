"""Which policy counts, and since when, in the audit: whoever changes the file changes who may do what."""

from __future__ import annotations

from typing import ClassVar

from device_agent.parts import Part
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.policy_file import PolicyHolder, own_user


class PolicyNotes(Part):
    """Notes the policy at the start, and what became of it whenever it is read again."""

    name: ClassVar[str] = "policy-notes"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(self, holder: PolicyHolder, audit: AuditBook) -> None:
        self._holder = holder
        self._audit = audit

    async def open(self) -> None:
        """Note the policy that counts from now on, if a file says one."""
        if self._holder.policy.source:
            await self._note(None)

    def reload(self, path: str | None) -> None:
        """Read the policy again; a broken one is told and noted, and the one before counts on."""
        before = self._holder.mark
        wrong = self._holder.reload(path)
        if wrong is not None or self._holder.mark != before:
            self.spawn(self._note(wrong), "note")

    async def _note(self, wrong: str | None) -> None:
        deed = Deed(
            user=own_user(),
            door="file",
            action="policy.load",
            subject=self._holder.mark,
            verdict="allow" if wrong is None else "deny",
            why=wrong or "",
        )
        await self._audit.write([deed])
