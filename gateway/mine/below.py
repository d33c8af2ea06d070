"""What sites below tell of the mine is kept here, and what their devices ask of other sites is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError, Refused, UsageInvalid
from device_agent.protocol import limits, mine
from device_agent.protocol.messages import decode_value
from device_agent.protocol.questions import ANSWER_BYTES
from gateway.answers import Answers
from gateway.devices.registry import Registry
from gateway.metrics import Metrics
from gateway.mine import words_up
from gateway.mine.book import Change, MineBook, Told
from gateway.mine.reading import MineReading
from gateway.store.reader import Reader
from gateway.store.writer import Statement

LINK: Final = "uplink"
ROOM: Final = ANSWER_BYTES - 8 * 1024

AskAbove = Callable[[words_up.Others], Awaitable[list[mine.Found]]]
"""Asks a master in its turn. Raises ``OutstationError`` when there is no answer."""

_PUT = (
    "INSERT INTO mine_positions (link, epoch, revision) VALUES (?, ?, ?)"
    " ON CONFLICT (link) DO UPDATE SET epoch=excluded.epoch, revision=excluded.revision"
)


class MineBelow:
    """Answers the questions of sites. ``other_sites``: whether they are answered with values of each other."""

    def __init__(
        self,
        *,
        book: MineBook,
        reading: MineReading,
        registry: Registry,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
        other_sites: bool,
        ask_above: AskAbove | None,
    ) -> None:
        self._book = book
        self._reading = reading
        self._registry = registry
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._other_sites = other_sites
        self._ask_above = ask_above
        self._turns: dict[str, asyncio.Lock] = {}

    def answer_with(self, answers: Answers) -> None:
        """Answer from now on."""
        answers.about(words_up.TOLD, self.told)
        answers.about(words_up.OTHERS, self.others)

    # --- kept ------------------------------------------------------------------------------------------------------

    async def told(self, link: str, body: bytes) -> bytes:
        """A site tells what has changed; it is answered with how far everything is on disk here."""
        page = words_up.decode_page(body)
        async with self._turns.setdefault(link, asyncio.Lock()):
            position = await self._position(link, page.epoch)
            if page.after <= position and page.devices:
                async with asyncio.TaskGroup() as group:
                    for device in page.devices:
                        group.create_task(self._keep(link, device))
                position = page.upto
                await self._book.change([], [_at(link, page.epoch, position)])
        return words_up.encode(words_up.Position(position))

    async def _position(self, link: str, epoch: str) -> int:
        rows = await self._reader.rows("SELECT epoch, revision FROM mine_positions WHERE link = ?", (link,))
        if rows and rows[0][0] == epoch:
            return int(rows[0][1])
        # Another store: what was told of the one before is told anew.
        gone = [Change(each.site, each.device, without=None, link=link) for each in self._book.of_link(link)]
        await self._book.change(gone, [_at(link, epoch, 0)])
        return 0

    async def _keep(self, link: str, told: words_up.DeviceMine) -> None:
        try:
            known = self._book.shelf(told.site, told.device)
            if not self._registry.bind(told.site, link):
                raise Refused("foreign_site", f"the mine of {told.device} of {told.site}")
            if known is None and len(self._book.of_link(link)) >= limits.DEVICES_PER_STATION:
                raise Refused("mine_full", f"{limits.DEVICES_PER_STATION} devices are known of {link}")
            cells = known.cells if known is not None else {}
            now, lines = self._clock.wall(), list[Told]()
            for line in told.lines:
                if line.value is not None:
                    decode_value(line.value)
                elif line.name not in cells:
                    self._metrics.refused(LINK, "mine_unknown", link, f"{told.device}: {line.name}")
                    continue
                lines.append(Told(line.name, line.value, line.allow_tgt, line.allow_type, min(line.kept, now)))
            await self._book.change([Change(told.site, told.device, lines, whole=True, link=link)])
        except Refused as refusal:
            self._metrics.refused(LINK, refusal.reason, link, refusal.detail)

    # --- read ------------------------------------------------------------------------------------------------------

    async def others(self, link: str, body: bytes) -> bytes:
        """A device of a site reads values of other sites."""
        asked = words_up.decode_others(body)
        if not self._other_sites:
            raise Refused("not_shared", "this station does not answer sites with values of others: mine.other_sites")
        if asked.site != link and self._registry.link_of(asked.site) != link:
            raise Refused("foreign_site", f"{link} speaks for {asked.site}")
        asker = self._reading.asker(asked.site, asked.device)
        if asker is None:
            raise Refused("unknown_device", f"{asked.device} of {asked.site}")
        get = asked.get
        try:
            values = await self._reading.read(
                get.tgt, get.tgt_type, get.names, asker=asker, sites=True, most=ROOM, without=asked.site
            )
        except NotFound:
            raise
        except UsageInvalid as error:
            raise Refused("bad_target", f"{error.what}: {error.found}") from None
        found = {
            (value.device, value.name): mine.Found(value.device, value.name, value.value) for value in values[::-1]
        }
        if self._ask_above is not None:
            try:
                above = await self._ask_above(asked)
            except OutstationError:
                self._metrics.add("mine_below_only")
                above = []
            for each in above:
                found.setdefault((each.device, each.name), each)
        self._metrics.add("mine_read")
        return mine.encode(list(found.values()))


def _at(link: str, epoch: str, revision: int) -> Statement:
    return (_PUT, [(link, epoch, revision)])
