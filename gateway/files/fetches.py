"""Fetches contents from the station above into the store: each once, however many wait for it.

The line above is slow and breaks. So what is asked for is small enough to be there in about a second, every chunk is
judged when it comes, what is here stays here, and a fetch that has nobody to ask goes on when there is somebody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, Final

from device_agent.clock import Clock
from device_agent.errors import OutstationError, Refused
from device_agent.parts import Part
from device_agent.protocol.file_questions import (
    CHUNK,
    CHUNK_BYTES,
    HASHES,
    MARK_BYTES,
    AskChunk,
    AskHashes,
    FileEntry,
    chunks_of,
    encode,
)
from device_agent.questions import Unanswered
from gateway.files.kept_answers import Above
from gateway.files.store import ContentStore, mark_of
from gateway.metrics import Metrics
from upstream.link_budget import LinkBudget

log = logging.getLogger(__name__)

HOLD_SECONDS: Final = 3.0
"""So long somebody waits for a piece before he is told to ask again; less than it takes him to think it lost."""

AT_ONCE: Final = 2
"""Contents that are fetched at the same time."""

WAITING: Final = 1000
WIDTH: Final = 4
"""Chunks of one content that are asked for at the same time, on a line that is quick."""

QUICK_SECONDS: Final = 0.25
SLOW_SECONDS: Final = 1.5
SMALLEST_PIECE: Final = 8 * 1024
AGAIN_FIRST_SECONDS: Final = 0.25
AGAIN_CEILING_SECONDS: Final = 5.0
CORRUPT_MOST: Final = 4
"""Wrong chunks in a row before a fetch is given up."""

TURN_SECONDS: Final = 20.0
"""A content of which nothing came for so long lets another have its turn, if one waits."""

FAILED_SECONDS: Final = 2.0
"""So long whoever asks hears why a fetch failed, before it is tried again."""

PASSING: Final = frozenset({"busy", "failed"})
"""Reasons of the station above that are over in a while."""


GONE: Final = frozenset({"changed", "not_found"})
"""Reasons for which nobody will ever have the rest."""


class TurnOver(OutstationError):
    """Nothing comes of this one, and others wait."""

    default_id: ClassVar[str] = "files.turn_over"


class Fetch:
    """One content on its way."""

    def __init__(self, entry: FileEntry) -> None:
        self.entry = entry
        self.there: set[int] = set()
        self.begun = False
        """Whether its marks are in the store."""
        self.marks = b""
        self.moved = 0.0
        """When something of it came last, or its turn began."""
        self.why = ""
        """Why nothing comes just now."""
        self.error: Refused | None = None
        self.failed_at = 0.0
        self.changed = asyncio.Event()

    def pulse(self) -> None:
        """Wake who waits."""
        self.changed.set()
        self.changed = asyncio.Event()


class Fetches(Part):
    """All of them."""

    name: ClassVar[str] = "fetches"
    drain_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        store: ContentStore,
        above: Callable[[], Above | None],
        max_bytes_per_second: int,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._store = store
        self._above = above
        self.budget = LinkBudget(max_bytes_per_second, clock)
        self._metrics = metrics
        self._clock = clock
        self._fetches: dict[str, Fetch] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        """Those that wait for their turn."""

    def under_way(self) -> set[str]:
        """The hashes of what is being fetched, however long nobody can be asked for it."""
        return {sha256 for sha256, fetch in self._fetches.items() if fetch.error is None}

    def views(self) -> list[tuple[FileEntry, int, str]]:
        """What is being fetched: the file, bytes that are here, and why it failed, or does not come just now."""
        return [
            (
                fetch.entry,
                min(fetch.entry.size, len(fetch.there) * CHUNK_BYTES),
                fetch.why if fetch.error is None else str(fetch.error),
            )
            for fetch in self._fetches.values()
        ]

    async def piece(self, entry: FileEntry, offset: int, length: int) -> bytes:
        """Bytes of a content that is fetched, at once or soon; none when they are not here yet. Raises ``Refused``."""
        if entry.size == 0:
            return b""
        fetch = self._fetch(entry)
        number = offset // CHUNK_BYTES
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                while number not in fetch.there and not self._store.has(entry.sha256):
                    if fetch.error is not None:
                        raise fetch.error
                    await fetch.changed.wait()
        except TimeoutError:
            return b""
        return await self._store.piece(entry.sha256, offset, length) or b""

    async def begun(self, entry: FileEntry) -> None:
        """Return when the marks of a content are known, or after a while without them. Raises ``Refused``."""
        fetch = self._fetch(entry)
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD_SECONDS):
                while not fetch.begun:
                    if fetch.error is not None:
                        raise fetch.error
                    await fetch.changed.wait()

    def _fetch(self, entry: FileEntry) -> Fetch:
        fetch = self._fetches.get(entry.sha256)
        if fetch is not None and fetch.error is not None:
            if self._clock.monotonic() - fetch.failed_at < FAILED_SECONDS:
                raise fetch.error
            fetch = None
        if fetch is None:
            if len(self._fetches) >= WAITING:
                self._forget_old()
            if len(self._fetches) >= WAITING:
                raise Refused("busy", f"{WAITING} files are being fetched; ask again")
            fetch = self._fetches[entry.sha256] = Fetch(entry)
            self.spawn(self._run(fetch), entry.sha256[:12])
        return fetch

    async def _run(self, fetch: Fetch) -> None:
        entry = fetch.entry
        try:
            while not await self._had_turn(fetch):
                self._metrics.add("files_turns_over")
            self._metrics.add("files_fetched")
            log.info("fetched path=%s saltenv=%s bytes=%d", entry.path, entry.saltenv, entry.size)
            del self._fetches[entry.sha256]
        except OutstationError as error:
            refusal = error if isinstance(error, Refused) else Refused("failed", error.what)
            fetch.error, fetch.failed_at = refusal, self._clock.monotonic()
            self._metrics.refused("files", refusal.reason, entry.path, refusal.detail)
            if refusal.reason in GONE and not self._store.has(entry.sha256):
                self._store.drop(entry.sha256)
            elif refusal.reason == "corrupt":
                self._store.forget_marks(entry.sha256)
            self._forget_old()
        finally:
            fetch.pulse()

    async def _had_turn(self, fetch: Fetch) -> bool:
        """Fetch it when its turn comes; False when others had waited, and nothing came. Raises ``Refused``."""
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            fetch.moved = self._clock.monotonic()
            await self._fetched(fetch)
        except TurnOver:
            return False
        finally:
            self._turns.release()
        return True

    def check_turn(self, fetch: Fetch) -> None:
        """What nobody can bring now holds up nobody else. Raises ``TurnOver``."""
        if self._waiting and self._clock.monotonic() - fetch.moved > TURN_SECONDS:
            raise TurnOver(f"nothing came of {fetch.entry.path} for {TURN_SECONDS:.0f} s")

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        for sha256, fetch in list(self._fetches.items()):
            if fetch.error is not None and now - fetch.failed_at > FAILED_SECONDS:
                del self._fetches[sha256]

    async def _fetched(self, fetch: Fetch) -> None:
        entry = fetch.entry
        if not fetch.begun or self._store.size(entry.sha256) != entry.size:
            fetch.marks = await self._store.marks(entry.sha256) or await self._marks(fetch)
            fetch.there = await self._store.begin(entry.sha256, entry.size, fetch.marks)
            fetch.begun = True
            fetch.pulse()
        missing = [number for number in range(chunks_of(entry.size)) if number not in fetch.there]
        await Carrying(self, fetch, fetch.marks).carry(missing)
        if not await self._store.finish(entry.sha256):
            raise Refused("corrupt", f"{entry.path}: the whole is another file than its chunks")

    async def arrived(self, fetch: Fetch, number: int, chunk: bytes) -> None:
        """A chunk is here, and right."""
        await self._store.put(fetch.entry.sha256, number, chunk)
        self._store.in_use([fetch.entry.sha256])
        self._metrics.add("files_fetched_bytes", len(chunk))
        fetch.there.add(number)
        fetch.pulse()

    def count_corrupt(self, entry: FileEntry, number: int) -> None:
        """A chunk came wrong, and is asked for again."""
        self._metrics.refused("files", "corrupt", entry.path, f"chunk {number} came wrong")

    async def _marks(self, fetch: Fetch) -> bytes:
        entry = fetch.entry
        wanted = chunks_of(entry.size) * MARK_BYTES
        marks = b""
        while len(marks) < wanted:
            more, _ = await self.ask(fetch, HASHES, encode(AskHashes(entry, len(marks) // MARK_BYTES)))
            if not more:
                # A relay does not know them yet.
                self.check_turn(fetch)
                await asyncio.sleep(AGAIN_FIRST_SECONDS)
            if len(more) % MARK_BYTES or len(marks) + len(more) > wanted:
                raise Refused("corrupt", f"{entry.path}: a wrong number of marks")
            marks += more
        return marks

    async def ask(self, fetch: Fetch, about: str, body: bytes) -> tuple[bytes, float]:
        """Ask until somebody answers; nobody there is no reason to give up. Also how long it took.

        Raises ``Refused``, and ``TurnOver``.
        """
        wait = AGAIN_FIRST_SECONDS
        while True:
            above = self._above()
            try:
                if above is None:
                    raise Refused("not_found", "this station has no master to ask")
                began = self._clock.monotonic()
                answer, now = await above.ask(about, body), self._clock.monotonic()
                if answer:
                    fetch.moved, fetch.why = now, ""
                return answer, now - began
            except Unanswered:
                self._metrics.add("files_unanswered")
            except Refused as refusal:
                if refusal.reason not in PASSING:
                    raise
                fetch.why = str(refusal) if refusal.reason == "failed" else ""
                self._metrics.refused("files", refusal.reason, fetch.entry.path, refusal.detail)
            self.check_turn(fetch)
            await asyncio.sleep(wait)
            wait = min(2.0 * wait, AGAIN_CEILING_SECONDS)


class Carrying:
    """The chunks of one fetch on the line: so few that each is there in a moment, and enough to keep the line full."""

    def __init__(self, fetches: Fetches, fetch: Fetch, marks: bytes) -> None:
        self._fetches = fetches
        self._fetch = fetch
        self._marks = marks
        self._piece = CHUNK_BYTES // 4
        self._width = 1
        self._corrupt = 0
        self._error: OutstationError | None = None

    async def carry(self, numbers: list[int]) -> None:
        """Return when all of these chunks are here. Raises ``Refused``."""
        waiting = numbers[::-1]
        async with asyncio.TaskGroup() as group:
            running: set[asyncio.Task[None]] = set()
            while (waiting and self._error is None) or running:
                while waiting and self._error is None and len(running) < self._width:
                    running.add(group.create_task(self._chunk(waiting.pop())))
                _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        if self._error is not None:
            raise self._error

    async def _chunk(self, number: int) -> None:
        entry = self._fetch.entry
        mark = self._marks[number * MARK_BYTES : (number + 1) * MARK_BYTES]
        size = min(CHUNK_BYTES, entry.size - number * CHUNK_BYTES)
        try:
            while mark_of(chunk := await self._collected(number * CHUNK_BYTES, size)) != mark:
                self._corrupt += 1
                self._fetches.count_corrupt(entry, number)
                if self._corrupt >= CORRUPT_MOST:
                    raise Refused("corrupt", f"{entry.path}: chunk {number} comes wrong again and again")
            self._corrupt = 0
            await self._fetches.arrived(self._fetch, number, chunk)
        except OutstationError as error:
            # The others that are under way still come, and are kept.
            self._error = self._error or error

    async def _collected(self, offset: int, size: int) -> bytes:
        chunk = b""
        while len(chunk) < size:
            length = min(size - len(chunk), self._piece, self._fetches.budget.most_bytes)
            await self._fetches.budget.room()
            self._fetches.budget.spend(length)
            more, seconds = await self._fetches.ask(
                self._fetch, CHUNK, encode(AskChunk(self._fetch.entry, offset + len(chunk), length))
            )
            if len(more) > length:
                raise Refused("corrupt", f"{self._fetch.entry.path}: {len(more)} bytes where {length} were asked for")
            chunk += more
            if more:
                self._learn(seconds)
            else:
                # A relay does not have it yet.
                self._fetches.check_turn(self._fetch)
                await asyncio.sleep(AGAIN_FIRST_SECONDS)
        return chunk

    def _learn(self, seconds: float) -> None:
        """What the last piece took says how much the line bears."""
        if seconds > SLOW_SECONDS:
            self._width, self._piece = 1, max(SMALLEST_PIECE, self._piece // 2)
        elif seconds < QUICK_SECONDS and self._piece < CHUNK_BYTES:
            self._piece *= 2
        elif seconds < QUICK_SECONDS:
            self._width = min(WIDTH, self._width + 1)
