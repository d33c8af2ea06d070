"""``event``: events of the station."""

from __future__ import annotations

from typing import Any

from device_agent.errors import OutstationError, UsageInvalid
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.devices.policy import Operator
from gateway.event_words import check_fired
from gateway.jobs.permission import Permission


class EventRunner:
    """The runner."""

    def __init__(self, permission: Permission) -> None:
        self._permission = permission

    def functions(self) -> list[Function]:
        """What it has. The policy is asked about each event, as it is by ``outstation fire``."""
        return [Function("event.send", self.send, ruled=False, refusal=self.refusal)]

    def refusal(self, operator: Operator, tag: str, data: dict[str, Any] | None = None) -> OutstationError | None:
        """Return why the event of a call would be refused; None if it would be fired."""
        try:
            return self._permission.firing_refusal(operator, tag, check_fired(tag, data or {}))
        except UsageInvalid as error:
            return error

    async def send(self, running: Running, tag: str, data: dict[str, Any] | None = None) -> bool:
        """Fire an event of this station; its data is as it is given, with a stamp.

        CLI example: ``outstation runner event.send site/door/opened '{door: north}'``
        """
        told = check_fired(tag, data or {})
        audit = await self._permission.firing(running.operator, [(tag, told)])
        if not await running.has_fired():
            await running.fire(tag, told, audit, upward=True)
        return True
