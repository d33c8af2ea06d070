"""The mine of a station: values of its own devices and of those below, on disk, and what is known of them in memory.

Whatever is asked for at the same time is written together, one batch after the other, so that a revision is on disk
before a higher one is: whoever reads on from a revision misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import NotFound, OutstationError, Refused
from device_agent.parts import Part
from gateway.devices.registry import REVOKED, Registry
from gateway.metrics import Metrics
from gateway.mine.shelf import Cell, Shelf, cell, fits
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

MEGABYTE: Final = 1024 * 1024
BATCH: Final = 256
SWEEP_SECONDS: Final = 30.0
ONE_BY_ONE: Final = 32
"""So many devices are read one by one; for more it is all rows of a name."""

_PUT_DEVICE = (
    "INSERT INTO mine_devices (site, device, link, revision) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (site, device) DO UPDATE SET link=excluded.link, revision=excluded.revision"
)
_PUT = (
    "INSERT INTO mine (site, device, name, value, allow_tgt, allow_type, kept, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (site, device, name) DO UPDATE SET value=excluded.value, allow_tgt=excluded.allow_tgt,"
    " allow_type=excluded.allow_type, kept=excluded.kept, changed=excluded.changed"
)
_TOUCH = "UPDATE mine SET kept = ? WHERE site = ? AND device = ? AND name = ?"
_DROP = "DELETE FROM mine WHERE site = ? AND device = ? AND name = ?"


class Told(Struct, frozen=True):
    """A value as it is to be: without ``value`` it is the one that is known. ``kept`` is None for now."""

    name: str
    value: bytes | None
    allow_tgt: str = ""
    allow_type: str = "glob"
    kept: float | None = None


class Change(Struct, frozen=True):
    """What is to be of one device. ``whole``: what it is not told of is gone. ``link``: the site below that tells."""

    site: str
    device: str
    told: Sequence[Told] = ()
    whole: bool = False
    without: Collection[str] | None = ()
    """Names that are gone; None for all."""
    link: str = ""


class _Waiting(Struct):
    changes: Sequence[Change]
    beside: Sequence[Statement]
    done: asyncio.Future[None]


class MineBook(Part):
    """All values, by site and device."""

    name: ClassVar[str] = "mine"
    drain_seconds: ClassVar[float] = 1.0
    """Nothing is drained: what was told is on disk, or was refused."""

    def __init__(
        self,
        *,
        site: str,
        megabytes: int,
        registry: Registry,
        writer: Writer,
        reader: Reader,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._most = megabytes * MEGABYTE
        self._registry = registry
        self._writer = writer
        self._reader = reader
        self._metrics = metrics
        self._clock = clock
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self._sizes: dict[str, int] = {}
        self._revision = 0
        self._waiting: list[_Waiting] = []
        self._turn = asyncio.Lock()
        self._changed: list[Callable[[], None]] = []

    async def open(self) -> None:
        """Load all but the values."""
        devices = await self._reader.rows("SELECT site, device, link, revision FROM mine_devices")
        cells: dict[tuple[str, str], dict[str, Cell]] = {}
        last = ("", "", "")
        # Page by page: with their values they are more than may be held at once.
        while rows := await self._reader.rows(
            "SELECT site, device, name, value, allow_tgt, allow_type, kept, changed FROM mine"
            " WHERE (site, device, name) > (?, ?, ?) ORDER BY site, device, name LIMIT ?",
            (*last, BATCH),
        ):
            for site, device, name, value, allow_tgt, allow_type, kept, changed in rows:
                found = cell(name, value, allow_tgt, allow_type, kept, changed)
                cells.setdefault((site, device), {})[name] = found
            last = tuple(rows[-1][:3])
        for site, device, link, revision in devices:
            self._remember(Shelf(site, device, link, revision, cells.get((site, device), {})))
            self._revision = max(self._revision, revision)
        self.spawn(self._sweep(), "sweep")

    # --- asked -----------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The newest that is on disk."""
        return max((shelf.revision for shelf in self._shelves.values()), default=0)

    def on_change(self, call: Callable[[], None]) -> None:
        """Call after anything was put on disk."""
        self._changed.append(call)

    def shelf(self, site: str, device: str) -> Shelf | None:
        """What is known of the values of one device."""
        return self._shelves.get((site, device))

    def shelves(self) -> Iterable[Shelf]:
        """Everybody's."""
        return list(self._shelves.values())

    def of_link(self, link: str) -> list[Shelf]:
        """What a site below has told, of its own devices and of those behind it."""
        return [shelf for shelf in self._shelves.values() if shelf.link == link]

    def after(self, revision: int) -> list[Shelf]:
        """What has changed since a revision, in order."""
        return sorted(
            (shelf for shelf in self._shelves.values() if shelf.revision > revision), key=lambda shelf: shelf.revision
        )

    def gauges(self) -> dict[str, float]:
        """What is kept here, and how old the oldest of it is that this station's own devices have told."""
        own = [shelf for shelf in self._shelves.values() if not shelf.link]
        oldest = min((cell.kept for shelf in own for cell in shelf.cells.values()), default=None)
        return {
            "mine_devices": float(sum(1 for shelf in self._shelves.values() if shelf.cells)),
            "mine_values": float(sum(len(shelf.cells) for shelf in self._shelves.values())),
            "mine_bytes": float(sum(self._sizes.values())),
            "mine_oldest_seconds": max(0.0, self._clock.wall() - oldest) if oldest is not None else 0.0,
        }

    async def values(self, wanted: Sequence[tuple[Shelf, str]], most: int) -> dict[tuple[str, str, str], bytes]:
        """These values, by site, device and name. Raises ``NotFound`` when they are more than ``most`` bytes."""
        size = sum(shelf.cells[name].size for shelf, name in wanted)
        if size > most:
            raise NotFound(
                f"these values are {size} bytes, at most {most}",
                error_id="mine.too_large",
                hint="name fewer devices, or fewer functions",
            )
        keys = {(shelf.site, shelf.device, name) for shelf, name in wanted}
        found: dict[tuple[str, str, str], bytes] = {}
        if len(keys) <= ONE_BY_ONE:
            for key in keys:
                rows = await self._reader.rows("SELECT value FROM mine WHERE site = ? AND device = ? AND name = ?", key)
                found.update((key, value) for (value,) in rows)
            return found
        last = ("", "")
        for name in {name for _, name in wanted}:
            while rows := await self._reader.rows(
                "SELECT site, device, value FROM mine WHERE name = ? AND (site, device) > (?, ?)"
                " ORDER BY site, device LIMIT ?",
                (name, *last, BATCH),
            ):
                found |= {(site, device, name): value for site, device, value in rows if (site, device, name) in keys}
                last = tuple(rows[-1][:2])
            last = ("", "")
        return found

    # --- changed ---------------------------------------------------------------------------------------------------

    async def change(self, changes: Sequence[Change], beside: Sequence[Statement] = ()) -> None:
        """Make it so, all of it on disk when this returns, or nothing. Raises ``Refused`` and ``StoreFailed``."""
        own = _Waiting(changes, beside, asyncio.get_running_loop().create_future())
        self._waiting.append(own)
        async with self._turn:
            while not own.done.done():
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._write(batch)
        own.done.result()

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        fresh: dict[tuple[str, str], Shelf] = {}
        sizes = dict(self._sizes)
        statements: list[Statement] = []
        taken = []
        for waiting in batch:
            if waiting.done.cancelled():
                continue
            before, spent, made = dict(fresh), dict(sizes), list[Statement]()
            try:
                for each in waiting.changes:
                    made += self._apply(each, fresh, sizes)
            except Refused as refusal:
                fresh, sizes = before, spent
                waiting.done.set_exception(refusal)
                continue
            statements += [*made, *waiting.beside]
            taken.append(waiting)
        try:
            await self._writer.commit(statements)
        except StoreFailed as error:
            for waiting in taken:
                waiting.done.set_exception(error)
            return
        except asyncio.CancelledError:
            for waiting in taken:
                waiting.done.cancel()
            raise
        for shelf in fresh.values():
            self._remember(shelf)
        for waiting in taken:
            if not waiting.done.done():
                waiting.done.set_result(None)
        for call in self._changed:
            call()

    def _apply(self, change: Change, fresh: dict[tuple[str, str], Shelf], sizes: dict[str, int]) -> list[Statement]:
        key = (change.site, change.device)
        before = fresh.get(key) or self._shelves.get(key)
        cells = dict(before.cells) if before is not None else {}
        self._revision += 1
        gone = set(cells) if change.without is None else set(change.without) & set(cells)
        if change.whole:
            gone |= set(cells) - {told.name for told in change.told}
        for name in gone:
            del cells[name]
        puts, touches = [], []
        for told in change.told:
            kept = told.kept if told.kept is not None else self._clock.wall()
            old = cells.get(told.name)
            if told.value is None:
                if old is None:
                    raise Refused("mine_unknown", f"{change.device}: the value of {told.name} was never told")
                cells[told.name] = replace(old, kept=kept)
            else:
                new = cell(told.name, told.value, told.allow_tgt, told.allow_type, kept, self._revision)
                cells[told.name] = replace(old, kept=kept) if old is not None and old.same(new) else new
            if old is not None and cells[told.name].changed == old.changed:
                touches.append((kept, *key, told.name))
            else:
                puts.append((*key, told.name, told.value, told.allow_tgt, told.allow_type, kept, self._revision))
        shelf = Shelf(*key, change.link, self._revision, cells)
        fits(shelf, before, sizes.get(change.link, 0), self._most)
        _weigh(sizes, before, shelf)
        fresh[key] = shelf
        made: list[Statement] = [(_DROP, [(*key, name) for name in gone]), (_PUT, puts), (_TOUCH, touches)]
        return [*made, (_PUT_DEVICE, [(*key, change.link, shelf.revision)])]

    def _remember(self, shelf: Shelf) -> None:
        key = (shelf.site, shelf.device)
        _weigh(self._sizes, self._shelves.get(key), shelf)
        self._shelves[key] = shelf

    # --- devices that are gone -------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
            except OutstationError as error:
                log.error("the mine was not swept error=%s", error.what)

    async def sweep(self) -> None:
        """Let go of the values of own devices that belong here no more."""
        gone = [
            Change(shelf.site, shelf.device, without=None)
            for shelf in self._shelves.values()
            if not shelf.link and shelf.cells and not self._is_here(shelf)
        ]
        if gone:
            await self.change(gone)
            self._metrics.add("mine_gone", len(gone))

    def _is_here(self, shelf: Shelf) -> bool:
        known = self._registry.known(shelf.site, shelf.device)
        return known is not None and known.state != REVOKED


def _weigh(sizes: dict[str, int], before: Shelf | None, after: Shelf) -> None:
    """What all values of each link take, with one shelf in the place of another."""
    if before is not None:
        sizes[before.link] = sizes.get(before.link, 0) - before.size
    sizes[after.link] = sizes.get(after.link, 0) + after.size
