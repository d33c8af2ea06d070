"""The spool: items in SQLite until a master has confirmed them. RAM stays flat whatever its depth.

Items are added inside the transaction of whatever they tell of, so that an outcome and its way up are one fact.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from device_agent.clock import Clock
from device_agent.errors import StationFailed
from device_agent.parts import Part
from device_agent.protocol import limits
from device_agent.protocol.messages import Item
from gateway.config import SpoolSettings
from gateway.spool import ledger
from gateway.spool.budget import MEGABYTE, Budget
from gateway.spool.streams import CLASS_OF, Class, Row, Rules
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer
from upstream.frames import STREAMS, LedgerRow, Stream

log = logging.getLogger(__name__)

MEASURE_SECONDS = 2.0
"""How often the budget is told what waits: what was to be added and could not be written counts until then."""

_ADD: Mapping[Stream, str] = {stream: f"INSERT INTO spool_{stream} (body) VALUES (?)" for stream in STREAMS}  # noqa: S608 - the six names of this program
_WAITING = "SELECT " + ", ".join(f"EXISTS (SELECT 1 FROM spool_{stream} WHERE sequence > ?)" for stream in STREAMS)  # noqa: S608 - the names again
_CONFIRMED = "returns_confirmed"
"""The row of the table station that says when a master last confirmed returns."""

_ADD_STATE = "INSERT INTO spool_state (key, body) VALUES (?, ?)"


def spool_of(settings: SpoolSettings, writer: Writer, reader: Reader, epoch: str, clock: Clock | None = None) -> Spool:
    """The spool that the settings ask for. It keeps nothing until it is ``enabled``."""
    most: dict[Class, int] = {
        "returns": settings.returns_megabytes * MEGABYTE,
        "events": settings.events_megabytes * MEGABYTE,
        "audit": settings.audit_megabytes * MEGABYTE,
        "telemetry": settings.telemetry_megabytes * MEGABYTE,
    }
    rules = Rules(urgent=settings.urgent, state=settings.state, telemetry=settings.telemetry)
    return Spool(writer, reader, epoch, enabled=False, rules=rules, budget=Budget(most), clock=clock)


async def _nobody(_: str) -> None:
    """A spool by itself."""


class Spool(Part):
    """Implements ``upstream.ports.Outgoing``. On a station without masters it keeps nothing: nobody would take it."""

    name: ClassVar[str] = "spool"

    def __init__(
        self,
        writer: Writer,
        reader: Reader,
        epoch: str,
        *,
        enabled: bool,
        rules: Rules | None = None,
        budget: Budget | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._writer = writer
        self._reader = reader
        self._epoch = epoch
        self._rules = rules or Rules()
        self.budget = budget or Budget()
        self._handed_out: Counter[Stream] = Counter()
        self._changed = asyncio.Event()
        self.enabled = enabled
        self.on_went_back: Callable[[str], Awaitable[None]] = _nobody
        """Called when a master shows that this store lost commits."""

    async def open(self) -> None:
        """Learn how full it is."""
        await self._measure()
        self.spawn(self._keep_measuring(), "measure")

    @property
    def epoch(self) -> str:
        """Names the store that numbered the items."""
        return self._epoch

    @property
    def changed(self) -> asyncio.Event:
        """Set after items were added."""
        return self._changed

    @property
    def path(self) -> Path:
        """The file that it is in."""
        return self._reader.path

    def adding(self, items: Sequence[Item]) -> list[Statement]:
        """The statements that add items; commit them with what they tell of, then call ``added``.

        Raises ``SpoolFull`` when the class is one that refuses and its budget is used up.
        """
        return self.adding_encoded(self.encoded(items))

    def encoded(self, items: Sequence[Item]) -> list[Row]:
        """Items as rows of the spool."""
        return [self._rules.row(item) for item in items] if self.enabled else []

    def passed_on(self, item: Item, body: bytes) -> list[Row]:
        """The row for an item that is bytes already: what a relay passes on."""
        return [self._rules.row(item, body)] if self.enabled else []

    def adding_encoded(self, rows: Sequence[Row]) -> list[Statement]:
        """The same for rows. Raises ``SpoolFull``."""
        if not self.enabled or not rows:
            return []
        if len(rows) == 1 and rows[0].stream != "state":
            # By far the most frequent, and the busiest thing that a station does.
            return self._adding_one(rows[0])
        statements: list[Statement] = []
        counts: Counter[Class] = Counter()
        sizes: Counter[Class] = Counter()
        bodies: dict[Stream, list[tuple[bytes]]] = {}
        for stream, key, body in rows:
            name = CLASS_OF[stream]
            counts[name] += 1
            sizes[name] += len(body)
            if stream == "state":
                statements += ledger.coalescing(key, self._handed_out[stream])
                statements.append((_ADD_STATE, [(key, body)]))
            else:
                bodies.setdefault(stream, []).append((body,))
        for name, size in sizes.items():
            self.budget.need_room(name, size)
        statements += [(_ADD[stream], added) for stream, added in bodies.items()]
        statements += [ledger.accepted(name, counts[name], sizes[name]) for name in counts]
        for name, size in sizes.items():
            statements += self.budget.taking(name, size)
        return statements

    def _adding_one(self, row: Row) -> list[Statement]:
        stream, _, body = row
        name, size = CLASS_OF[stream], len(body)
        self.budget.need_room(name, size)
        return [(_ADD[stream], [(body,)]), ledger.accepted(name, 1, size), *self.budget.taking(name, size)]

    def added(self) -> None:
        """Wake whoever sends."""
        self._changed.set()

    async def next_stream(self, sent: Mapping[Stream, int]) -> Stream | None:
        """The first stream, in the order in which they go up, that has items after those sent; None for none."""
        ((*waiting,),) = await self._reader.rows(_WAITING, [sent.get(stream, 0) for stream in STREAMS])
        return next((stream for stream, some in zip(STREAMS, waiting, strict=True) if some), None)

    async def read(self, stream: Stream, after: int, most_bytes: int = limits.BATCH_BYTES) -> list[tuple[int, bytes]]:
        """The next items of a stream: at most BATCH_ITEMS, and ``most_bytes`` unless a single one is larger."""
        # Sizes first: the bodies of a whole batch of the largest items would not fit in memory.
        sizes = await self._reader.rows(
            f"SELECT sequence, length(body) FROM spool_{stream} WHERE sequence > ? ORDER BY sequence LIMIT ?",  # noqa: S608 - see _ADD
            (after, limits.BATCH_ITEMS),
        )
        last, total = after, 0
        for sequence, size in sizes:
            total += size
            if last > after and total > most_bytes:
                break
            last = sequence
        if last == after:
            return []
        # Before the rows are read: from here on nothing takes the place of one of them.
        self._handed_out[stream] = max(self._handed_out[stream], last)
        rows = await self._reader.rows(
            f"SELECT sequence, body FROM spool_{stream} WHERE sequence > ? AND sequence <= ? ORDER BY sequence",  # noqa: S608 - see _ADD
            (after, last),
        )
        return [(sequence, body) for sequence, body in rows]

    async def confirm(self, stream: Stream, sequence: int, master: str) -> None:
        """A master has everything of a stream up to here on disk: let it go."""
        await self._let_go(stream, ledger.delivered(stream, sequence, master))

    async def confirm_items(
        self, stream: Stream, sequences: Sequence[int], master: str, beside: Sequence[Statement] = ()
    ) -> None:
        """A master has these items of a stream, and perhaps not those between them: let them go.

        What stands ``beside`` is in the same commit.
        """
        await self._let_go(stream, [*ledger.delivered_items(stream, sequences, master), *beside])

    async def drop(self, stream: Stream, sequence: int, reason: str, beside: Sequence[Statement] = ()) -> None:
        """Nobody above takes this item: it is let go, and counted as dropped for this reason.

        What stands ``beside`` is in the same commit.
        """
        await self._writer.commit([*ledger.dropped(stream, sequence, reason), *beside])
        await self._measure()

    async def waiting(self, stream: Stream, sequences: Sequence[int]) -> set[int]:
        """Which of these items of a stream nobody has confirmed yet."""
        rows = await self._reader.rows(
            f"SELECT sequence FROM spool_{stream} WHERE sequence IN (SELECT value FROM json_each(?))",  # noqa: S608 - see _ADD
            (json.dumps(list(sequences)),),
        )
        return {sequence for (sequence,) in rows}

    async def newest(self, stream: Stream) -> int:
        """The highest sequence that waits in a stream; 0 for none."""
        ((last,),) = await self._reader.rows(f"SELECT coalesce(max(sequence), 0) FROM spool_{stream}")  # noqa: S608 - see _ADD
        return int(last)

    async def _let_go(self, stream: Stream, statements: list[Statement]) -> None:
        if stream == "returns":
            now = (_CONFIRMED, str(self._clock.wall()))
            statements.append(("INSERT OR REPLACE INTO station (key, value) VALUES (?, ?)", [now]))
        await self._writer.commit(statements)
        await self._measure()

    async def returns_confirmed(self) -> float | None:
        """When a master last confirmed returns, in wall seconds; None when none ever did."""
        rows = await self._reader.rows("SELECT value FROM station WHERE key = ?", (_CONFIRMED,))
        return float(rows[0][0]) if rows else None

    async def reaches(self, positions: Mapping[Stream, int]) -> bool:
        """Whether this store ever gave out sequences that high."""
        given = dict(await self._reader.rows("SELECT name, seq FROM sqlite_sequence"))
        return all(sequence <= given.get(f"spool_{stream}", 0) for stream, sequence in positions.items())

    async def renew_epoch(self) -> None:
        """Number from now on under another name."""
        epoch = secrets.token_hex(8)
        await self._writer.commit([("UPDATE station SET value = ? WHERE key = 'epoch'", [(epoch,)])])
        self._epoch = epoch

    async def went_back(self, why: str) -> None:
        """A master knows more of this store than is in it. The state of the store is on disk before the new epoch."""
        await self.on_went_back(why)
        await self.renew_epoch()

    async def pending(self) -> int:
        """How many items wait."""
        return sum(entry.pending for entry in await ledger.entries(self._reader))

    async def entries(self) -> list[ledger.Entry]:
        """The ledger."""
        return await ledger.entries(self._reader)

    async def report(self, master: str) -> list[LedgerRow]:
        """The ledger as a master is told it."""
        return await ledger.report(self._reader, master)

    async def _measure(self) -> None:
        self.budget.measured({entry.name: entry.pending_bytes for entry in await ledger.entries(self._reader)})

    async def _keep_measuring(self) -> None:
        while True:
            await asyncio.sleep(MEASURE_SECONDS)
            try:
                await self._measure()
            except StationFailed as error:
                log.error("what waits was not measured error=%s", error.found)
