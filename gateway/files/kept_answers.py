"""What masters answered, kept: asked once for however many want to know, and known while nobody can be asked."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from device_agent.clock import Clock
from device_agent.errors import NotFound, Refused
from device_agent.protocol.file_questions import Listing, encode
from device_agent.questions import Unanswered
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

PATIENCE_SECONDS: Final = 45.0
KNOWN_PATIENCE_SECONDS: Final = 10.0
"""So long a master may take where an older answer of his is kept."""

IN_MEMORY: Final = 5_000
KEPT_MOST: Final = 50_000
NOTHING_MOST: Final = 5_000
"""Answers that there is nothing, of those: a device that asks for what it makes up drives out none of the others."""

TRIM_EVERY: Final = 500
WRITE_AGAIN_SECONDS: Final = 3600.0
"""An answer that is still the same is written again after so long, so that it is known how old it is."""

_NOTHING = encode(Listing([]))
_TRIM_NOTHING = """DELETE FROM kept_answers WHERE (answer IS NULL OR answer = ?) AND at < (SELECT at FROM kept_answers
WHERE answer IS NULL OR answer = ? ORDER BY at DESC LIMIT 1 OFFSET ?)"""
_TRIM = "DELETE FROM kept_answers WHERE at < (SELECT at FROM kept_answers ORDER BY at DESC LIMIT 1 OFFSET ?)"


class Above(Protocol):
    """Whoever can be asked about what is not here."""

    async def ask(self, about: str, body: bytes = b"", *, patience: float = PATIENCE_SECONDS) -> bytes:
        """The body of the answer. Raises ``Refused`` with a reason, and ``Unanswered``."""


@dataclass(slots=True)
class Kept:
    """An answer; None: there is nothing. ``heard`` is monotonic, and None when an earlier process heard it."""

    answer: bytes | None
    heard: float | None
    written: float


class Asking:
    """A question that is being asked, and those who wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.askers = 0
        self.unanswered: tuple[float, str] | None = None
        """When nobody answered, in monotonic seconds, and why."""


class KeptAnswers:
    """Asks above, and keeps what it hears."""

    def __init__(
        self, above: Callable[[], Above | None], fresh_seconds: float, writer: Writer, reader: Reader, clock: Clock
    ) -> None:
        self._above = above
        self._fresh = fresh_seconds
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._known: OrderedDict[tuple[str, bytes], Kept] = OrderedDict()
        self._asking: dict[tuple[str, bytes], Asking] = {}
        self._since_trim = 0

    async def ask(self, about: str, body: bytes) -> bytes:
        """The newest answer there is. Raises ``NotFound``, ``Refused`` and ``Unanswered``."""
        key, came = (about, body), self._clock.monotonic()
        asking = self._asking.setdefault(key, Asking())
        asking.askers += 1
        try:
            async with asking.lock:
                kept = await self._kept(key)
                if kept is None or kept.heard is None or self._clock.monotonic() - kept.heard >= self._fresh:
                    kept = await self._newest(key, kept, asking, came)
        finally:
            asking.askers -= 1
            if not asking.askers:
                self._asking.pop(key, None)
        if kept.answer is None:
            raise NotFound("no station has it")
        return kept.answer

    def doubt(self, about: str, body: bytes) -> None:
        """Ask anew at the next time: what was heard has proven wrong."""
        if (kept := self._known.get((about, body))) is not None:
            kept.heard = None

    async def all_about(self, about: str) -> list[bytes]:
        """Every answer about this that is on disk."""
        sql = "SELECT answer FROM kept_answers WHERE about = ? AND answer IS NOT NULL LIMIT ?"
        return [answer for (answer,) in await self._reader.rows(sql, (about, KEPT_MOST))]

    async def _newest(self, key: tuple[str, bytes], kept: Kept | None, asking: Asking, came: float) -> Kept:
        """What is answered now, or what was heard last. Raises ``Refused``, and ``Unanswered`` for want of either."""
        if asking.unanswered is not None and asking.unanswered[0] >= came:
            # It was asked while this one waited: not once more for each of those who waited.
            if kept is None:
                raise Unanswered(asking.unanswered[1])
            return kept
        try:
            return await self._anew(key, kept)
        except Unanswered as error:
            asking.unanswered = self._clock.monotonic(), error.what
            if kept is None:
                raise
            # Asked again as soon as anybody else wants to know.
            return kept

    async def _anew(self, key: tuple[str, bytes], kept: Kept | None) -> Kept:
        above = self._above()
        try:
            if above is None:
                raise Unanswered("this station has no master to ask")
            answer = await above.ask(*key, patience=PATIENCE_SECONDS if kept is None else KNOWN_PATIENCE_SECONDS)
        except Refused as refusal:
            if refusal.reason != "not_found":
                raise
            answer = None
        return await self._keep(key, kept, answer)

    async def _keep(self, key: tuple[str, bytes], kept: Kept | None, answer: bytes | None) -> Kept:
        now, wall = self._clock.monotonic(), self._clock.wall()
        if kept is None or kept.answer != answer or not 0 <= wall - kept.written < WRITE_AGAIN_SECONDS:
            statements: list[Statement] = [
                ("INSERT OR REPLACE INTO kept_answers VALUES (?, ?, ?, ?)", [(*key, answer, wall)])
            ]
            self._since_trim += 1
            if self._since_trim >= TRIM_EVERY:
                self._since_trim = 0
                statements += [(_TRIM_NOTHING, [(_NOTHING, _NOTHING, NOTHING_MOST)]), (_TRIM, [(KEPT_MOST,)])]
            try:
                await self._writer.commit(statements)
            except StoreFailed:
                # It is logged there; the answer is as good in memory until the next start.
                wall = 0.0
        else:
            wall = kept.written
        return self._remembered(key, Kept(answer, now, wall))

    async def _kept(self, key: tuple[str, bytes]) -> Kept | None:
        found = self._known.get(key)
        if found is None:
            rows = await self._reader.rows("SELECT answer, at FROM kept_answers WHERE about = ? AND body = ?", key)
            if rows:
                found = self._remembered(key, Kept(rows[0][0], None, rows[0][1]))
        return found

    def _remembered(self, key: tuple[str, bytes], kept: Kept) -> Kept:
        self._known[key] = kept
        self._known.move_to_end(key)
        if len(self._known) > IN_MEMORY:
            self._known.popitem(last=False)
        return kept
