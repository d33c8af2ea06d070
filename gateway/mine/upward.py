"""The mine goes up: every master that is there is told what has changed since what it has, newest values alone.

It is asked for where to go on and given page by page, one under way, over the road of questions: returns and events
have their own, and nothing of them waits for this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from device_agent.errors import OutstationError
from device_agent.parts import Part
from device_agent.protocol import mine
from gateway.metrics import Metrics
from gateway.mine import words_up
from gateway.mine.book import MineBook
from gateway.mine.shelf import Shelf
from upstream.rope import Ask

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
"""How often it is looked whether another master is there."""

AGAIN_SECONDS: Final = 10.0
"""After so long a master that did not take a page is asked again."""

GATHER_SECONDS: Final = 0.2
"""So long more changes are waited for, since only the newest of each device goes up."""

ROOM: Final = mine.DEVICE_BYTES


class MineUpward(Part):
    """Tells every master."""

    name: ClassVar[str] = "mine-upward"
    drain_seconds: ClassVar[float] = 1.0
    """Nothing is drained: what a master was not told it is told at the next start."""

    def __init__(
        self, *, book: MineBook, epoch: Callable[[], str], askable: Callable[[], Mapping[str, Ask]], metrics: Metrics
    ) -> None:
        self._book = book
        self._epoch = epoch
        self._askable = askable
        self._metrics = metrics
        self._told: dict[str, int] = {}
        self._busy: set[str] = set()
        self._wake = asyncio.Event()

    async def open(self) -> None:
        """Begin to tell."""
        self._book.on_change(self._wake.set)
        self.spawn(self._run(), "look")

    async def _run(self) -> None:
        while True:
            there = self._askable()
            # A master that was away has what it had on disk, which it is asked for again.
            self._told = {key: revision for key, revision in self._told.items() if key in there}
            for key, ask in there.items():
                if key not in self._busy and (key not in self._told or self._book.after(self._told[key])):
                    self._busy.add(key)
                    self.spawn(self._tell(key, ask), "tell")
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
                await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                pass
            self._wake.clear()

    async def _tell(self, key: str, ask: Ask) -> None:
        try:
            position = self._told.get(key)
            if position is None:
                position = await self._put(ask, words_up.Page(self._epoch(), 0, 0))
            if position > self._book.revision:
                # It knows more of this store than there is in it: it is told everything anew.
                position = 0
            while shelves := self._book.after(position):
                page, upto = await self._page(shelves, position)
                position = await self._put(ask, words_up.Page(self._epoch(), position, upto, page))
                if position != upto:
                    # It goes on elsewhere: it has another store than before, or has lost some of it.
                    await asyncio.sleep(LOOK_SECONDS)
                self._metrics.add("mine_told", len(page))
            self._told[key] = position
        except OutstationError as error:
            log.info("the mine was not told to a master, tried again error=%s", error)
            self._told.pop(key, None)
            await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._busy.discard(key)

    async def _put(self, ask: Ask, page: words_up.Page) -> int:
        return words_up.decode_position(await ask(words_up.TOLD, words_up.encode(page))).revision

    async def _page(self, shelves: Sequence[Shelf], after: int) -> tuple[list[words_up.DeviceMine], int]:
        page: list[words_up.DeviceMine] = []
        size, upto = 0, after
        for shelf in shelves[: words_up.PAGE_DEVICES]:
            fresh = [name for name, cell in shelf.cells.items() if cell.changed > after]
            size += sum(shelf.cells[name].size for name in fresh) + 128 * (1 + len(shelf.cells))
            if page and size > words_up.PAGE_BYTES:
                break
            values = await self._book.values([(shelf, name) for name in fresh], 2 * ROOM)
            lines = [
                words_up.Line(
                    name, cell.kept, values.get((shelf.site, shelf.device, name)), cell.allow_tgt, cell.allow_type
                )
                for name, cell in shelf.cells.items()
            ]
            page.append(words_up.DeviceMine(shelf.site, shelf.device, lines))
            upto = shelf.revision
        return page, upto
