"""A store with orders and answers, and the sender that tells Salt masters of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from device_agent.errors import Refused
from device_agent.protocol.messages import Close, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from device_agent.questions import Unanswered
from gateway.rooms import Rooms
from gateway.salt.book import SaltBook
from gateway.salt.sender import SaltSender
from tests.peers.clock import HandClock
from tests.peers.database import FIRST_JID
from tests.peers.salt_above import SaltAboveDouble, published

ONE, TWO = "192.0.2.1", "192.0.2.2"


class Sending:
    """A store with orders and answers, and a sender."""

    def __init__(self, rooms: Rooms, clock: HandClock) -> None:
        self.rooms, self.clock = rooms, clock
        self.book = SaltBook(rooms.writer, rooms.reader)
        self.sender = self.another()

    def another(self) -> SaltSender:
        return SaltSender(
            spool=self.rooms.spool,
            book=self.book,
            reader=self.rooms.reader,
            metrics=self.rooms.metrics,
            clock=self.clock,
            gateway="lisbon",
            masters=lambda: [ONE, TWO],
        )

    async def ordered(
        self, number: int, master: str, fun: str | list[str] = "test.echo", arg: Sequence[Any] = ("hello",)
    ) -> str:
        """A job that a master ordered."""
        jid = str(FIRST_JID + number)
        order = published(jid, fun, arg, master_id=f"id of {master}")
        name = fun if isinstance(fun, str) else ",".join(fun)
        await self.rooms.writer.commit(self.book.adding(order, name, master, ["cam-1"], self.clock.wall()))
        return jid

    async def answered(self, jid: str, *devices: str, value: object = "hello") -> None:
        records = [
            OutcomeRecord(
                jid=jid, site="lisbon", id=device, fun="test.echo", outcome=Outcome.OK, value=value, ended=1.0
            )
            for device in devices
        ]
        await self.rooms.writer.commit(self.rooms.spool.adding([*records, Close(jid=jid, site="lisbon", counts={})]))
        self.rooms.spool.added()

    async def not_answered(self, above: SaltAboveDouble) -> None:
        """Linked to the first master until it does not answer, or says no."""
        with pytest.raises((Unanswered, Refused)):
            await self.sender.run(above, ONE)

    async def emptied(self) -> bool:
        return await self.rooms.spool.pending() == 0

    async def dropped(self, name: str = "events") -> dict[str, int]:
        """Of this class, by reason."""
        return next(entry.dropped for entry in await self.rooms.spool.entries() if entry.name == name)

    async def ledger(self) -> tuple[int, int]:
        """Of the answers: how many were accepted, and how many are delivered."""
        (entry,) = [entry for entry in await self.rooms.spool.entries() if entry.name == "returns"]
        return entry.accepted, entry.delivered
