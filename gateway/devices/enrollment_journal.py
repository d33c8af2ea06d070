"""What is told of enrollment: Salt's events and rows of the audit, in the transaction of what they tell of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from device_agent.protocol import tags
from device_agent.protocol.messages import Event
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.bus import Bus
from gateway.devices.enrolled import Enrolled
from gateway.spool.queue import Spool
from gateway.store.writer import Statement, Writer

AuthAct = Literal["pend", "accept", "reject", "denied", "revoke"]
KeyAct = Literal["accept", "reject", "delete"]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who decides: a user, and the door (``socket``, ``api``, ``above``).

    The door is ``device`` where the user decided before the device came: by a token, or a list of expected keys.
    """

    user: str
    door: str = "socket"


class EnrollmentJournal:
    """Commits changes together with what is told of them."""

    def __init__(
        self, *, writer: Writer, bus: Bus, spool: Spool, audit: AuditBook, goes_by: Callable[[Enrolled], str]
    ) -> None:
        self._writer = writer
        self._bus = bus
        self._spool = spool
        self._audit = audit
        self._goes_by = goes_by

    def auth(self, device: Enrolled, act: AuthAct) -> Event:
        """Salt's ``salt/auth``: a device asked, and this was the answer."""
        return self._bus.event(
            tags.AUTH,
            {
                "id": self._goes_by(device),
                "act": act,
                "pub": device.sig.hex(),
                "result": act in ("pend", "accept"),
                "did": device.did,
                "fingerprint": device.fingerprint,
                "serial": device.serial,
                "model": device.model,
                "proof": device.proof,
                "detail": device.detail,
            },
        )

    def key(self, device: Enrolled, act: KeyAct) -> Event:
        """Salt's ``salt/key``: an operator decided about a key."""
        data: dict[str, object] = {"id": self._goes_by(device), "act": act, "result": True, "did": device.did}
        return self._bus.event(tags.KEY, data)

    async def commit(self, statements: Sequence[Statement], events: Sequence[Event], deeds: Sequence[Deed]) -> None:
        """Put changes on disk with their events and deeds, then tell. Raises ``StoreFailed``; then nothing was done."""
        unit, tell = self.telling(statements, events, deeds)
        await self._writer.commit(unit)
        await tell()

    def telling(
        self, statements: Sequence[Statement], events: Sequence[Event], deeds: Sequence[Deed]
    ) -> tuple[list[Statement], Callable[[], Awaitable[None]]]:
        """The same for whoever commits with something of their own: all statements, and what to call after that."""
        told = [*self._bus.keeping(events), *self._spool.adding(events)] if events else []
        kept = self._audit.statements(deeds) if deeds else []

        async def tell() -> None:
            if deeds:
                self._audit.written()
            if events:
                self._spool.added()
                self._bus.publish(events)
                await self._bus.kept(len(events))

        return [*statements, *told, *kept], tell

    async def write(self, statements: Sequence[Statement], *, wipes: bool = False) -> None:
        """Put statements on disk that tell of themselves. Raises ``StoreFailed``."""
        await self._writer.commit(statements, wipes=wipes)
