"""What devices ask of the mine, answered: values are kept, let go of and read, by whoever proved which device it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError, Refused, UsageInvalid
from device_agent.protocol import mine
from device_agent.protocol.messages import decode_value
from device_agent.protocol.questions import ANSWER_BYTES
from gateway.answers import Answers
from gateway.metrics import Metrics
from gateway.mine import words_up
from gateway.mine.book import Change, MineBook, Told
from gateway.mine.reading import MineReading

ROOM: Final = ANSWER_BYTES - 8 * 1024
"""Values in one answer, with what each takes beside itself counted by the book."""

LOST_CHARACTERS: Final = 500
ASK_ABOVE_SECONDS: Final = 15.0

AskAbove = Callable[[words_up.Others], Awaitable[list[mine.Found]]]
"""Asks a master for values of other sites. Raises ``OutstationError`` when there is no answer."""


class MineAnswers:
    """Answers the questions of this station's own devices."""

    def __init__(
        self,
        *,
        site: str,
        book: MineBook,
        reading: MineReading,
        metrics: Metrics,
        clock: Clock,
        ask_above: AskAbove | None,
    ) -> None:
        self._site = site
        self._book = book
        self._reading = reading
        self._metrics = metrics
        self._clock = clock
        self._ask_above = ask_above

    def answer_with(self, answers: Answers) -> None:
        """Answer from now on."""
        answers.about(mine.KEEP, self.keep)
        answers.about(mine.DELETE, self.delete)
        answers.about(mine.GET, self.get)
        answers.about(mine.AGES, self.ages)

    async def keep(self, device: str, body: bytes) -> bytes:
        """Keep the values that a device hands over.

        Raises:
            Refused: With each value whose ``allow_tgt`` is no target; the others are kept.
        """
        asked = mine.decode_keep(body)
        told, lost = [], []
        for entry in asked.entries:
            decode_value(entry.value)
            if why := self._wrong_target(entry):
                lost.append(f"allow_tgt of {entry.name}: {why}")
            else:
                told.append(Told(entry.name, entry.value, entry.allow_tgt, entry.allow_tgt_type))
        if told or asked.clear or not lost:
            await self._book.change([Change(self._site, self._belongs(device), told, whole=asked.clear)])
            self._metrics.add("mine_kept", len(told))
        if lost:
            raise Refused(mine.BAD_TARGET, "; ".join(lost)[:LOST_CHARACTERS])
        return b""

    def _wrong_target(self, entry: mine.Entry) -> str:
        if not entry.allow_tgt:
            return ""
        try:
            target = self._reading.target(entry.allow_tgt, entry.allow_tgt_type)
        except UsageInvalid as error:
            return error.what
        return "targets by pillar are not supported here" if target.needs_pillar else ""

    async def delete(self, device: str, body: bytes) -> bytes:
        """A device takes a value back, or all."""
        asked = mine.decode_delete(body)
        shelf = self._book.shelf(self._site, self._belongs(device))
        if shelf is not None and (asked.name is None or asked.name in shelf.cells):
            without = None if asked.name is None else (asked.name,)
            await self._book.change([Change(self._site, device, without=without)])
            self._metrics.add("mine_deleted")
        return b""

    async def ages(self, device: str, _: bytes) -> bytes:
        """How old the values of the asking device are."""
        shelf, now = self._book.shelf(self._site, device), self._clock.wall()
        cells = shelf.cells if shelf is not None else {}
        return mine.encode(mine.Ages({name: round(max(0.0, now - cell.kept), 1) for name, cell in cells.items()}))

    async def get(self, device: str, body: bytes) -> bytes:
        """A device reads what others of its site have told, and where it may also what those of other sites have."""
        asked = mine.decode_get(body)
        asker = self._reading.asker(self._site, self._belongs(device))
        try:
            values = await self._reading.read(
                asked.tgt, asked.tgt_type, asked.names, asker=asker, sites=False, most=ROOM
            )
        except NotFound:
            raise
        except UsageInvalid as error:
            raise Refused("bad_target", f"{error.what}: {error.found}") from None
        found = [mine.Found(value.device, value.name, value.value) for value in values]
        if self._ask_above is not None:
            found += await self._others(device, asked, found)
        self._metrics.add("mine_read")
        return mine.encode(found)

    async def _others(self, device: str, asked: mine.Get, own: list[mine.Found]) -> list[mine.Found]:
        """What a master has of other sites. Of two devices with one name it is the one of this site that is meant."""
        assert self._ask_above is not None
        here = {value.device for value in own}
        try:
            above = await self._ask_above(words_up.Others(self._site, device, asked))
        except OutstationError:
            self._metrics.add("mine_own_site_only")
            return []
        return [value for value in above if value.device not in here]

    def _belongs(self, device: str) -> str:
        if self._reading.asker(self._site, device) is None:
            raise Refused("not_accepted", device)
        return device
