"""The events that a device fired, on flash until its station has them.

A file of frames (``framing``), appended and flushed before whoever fires is told. What no longer fits pushes out the
oldest, which is counted. A torn tail is cut off; a damaged file is set aside, what reads is kept, under a new outbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import threading
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from device_agent.durable import read_regular, synced
from device_agent.framing import framed, free_name, read_frames
from device_agent.outbox import JournalUnavailable
from device_agent.protocol import limits
from device_agent.protocol.device_events import PAGE_BYTES, PAGE_EVENTS, Fired, Page
from device_agent.protocol.messages import decode_stored
from device_agent.state_folder import mended
from device_agent.write_health import WriteHealth

log = logging.getLogger(__name__)

EVENTS: Final = 1000
EVENTS_BYTES: Final = 1024 * 1024
"""Most that waits for the station; one more pushes out the oldest."""

COMPACT_BYTES: Final = 256 * 1024
"""The file is rewritten when it has grown by this much since it was last written whole."""

MAGIC: Final = b"OSEVNT1\n"
_RECORD_BYTES: Final = limits.EVENT_DATA_BYTES + 8 * 1024


class Record(Struct, array_like=True, frozen=True):
    """One line of the file: the outbox and the next sequence in it, how many were lost before this line, an event,
    one that gave way, or the sequence up to which the station has them.
    """

    kind: Literal["outbox", "lost", "event", "dropped", "taken"]
    number: int
    tag: str = ""
    body: bytes = b""
    at: float = 0.0
    local: bool = False


class _Waiting(NamedTuple):
    tag: str
    body: bytes
    at: float
    local: bool

    @property
    def size(self) -> int:
        return len(self.body) + len(self.tag)


class EventFile:
    """One device's events that wait. One process may have it open."""

    def __init__(self, path: Path, *, most: int = EVENTS, most_bytes: int = EVENTS_BYTES) -> None:
        self._path = path
        self._most = most
        self._most_bytes = most_bytes
        self.health = WriteHealth("the file of events", path)
        self._outbox = b""
        self._next = 1
        self._lost = 0
        self._waiting: dict[int, _Waiting] = {}
        self._bytes = 0
        self._asked = 0
        self._end = self._whole = 0
        self._turn = asyncio.Lock()
        # A cancelled write goes on in its thread; the next one must not pass it.
        self._file = threading.Lock()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def lost(self) -> int:
        """How many gave way to newer ones, since this outbox was begun."""
        return self._lost

    async def open(self) -> None:
        """Read the file and mend it. Raises ``JournalUnavailable`` when it cannot be read or written."""
        try:
            aside = await asyncio.to_thread(self._load)
        except OSError as error:
            raise JournalUnavailable(
                f"the events that wait cannot be opened: {error.strerror or error}",
                where=str(self._path),
                hint=mended(error, self._path.parent),
            ) from error
        if aside is not None:
            log.error("the file of events was damaged: set aside as %s, %d kept", aside, len(self._waiting))
        if self._waiting:
            log.info("events wait for the station count=%d", len(self._waiting))
            self._wake.set()

    async def add(self, tag: str, body: bytes, at: float, *, local: bool = False) -> None:
        """Keep an event; it is on flash when this returns. Raises ``JournalUnavailable``."""
        async with self._turn:
            sequence, self._next = self._next, self._next + 1
            entry = _Waiting(tag, body, at, local)
            gone = self._in_the_way(entry.size)
            lines = [Record("dropped", each) for each in gone]
            try:
                await self._append(*lines, Record("event", sequence, *entry))
            except OSError as error:
                raise JournalUnavailable(
                    f"the event cannot be kept: {error.strerror or error}", where=str(self._path)
                ) from error
            self._drop(gone)
            self._waiting[sequence] = entry
            self._bytes += entry.size
            self._wake.set()

    async def page(self, most: int = PAGE_EVENTS) -> Page:
        """The oldest events, once there are any. They give way to no newer one until the next page is asked for."""
        self._asked = 0
        while not self._waiting:
            self._wake.clear()
            await self._wake.wait()
        events: list[Fired] = []
        size = 0
        for sequence, entry in self._waiting.items():
            size += entry.size
            if len(events) >= most or (events and size > PAGE_BYTES):
                break
            events.append(Fired(sequence, entry.tag, decode_stored(entry.body), entry.at, entry.local))
        self._asked = events[-1].sequence
        return Page(events=events, outbox=self._outbox, lost=self._lost)

    async def taken(self, through: int) -> None:
        """The station has all up to this sequence. A disk that does not take the word costs a repeat, no more."""
        async with self._turn:
            self._take(through)
            try:
                await self._append(Record("taken", through))
            except OSError as error:
                log.error("the file of events cannot be written path=%s error=%s", self._path, error)

    async def lose(self, sequence: int) -> None:
        """An event that no station takes, whatever is tried."""
        async with self._turn:
            self._drop([sequence])
            try:
                await self._append(Record("dropped", sequence))
            except OSError as error:
                log.error("the file of events cannot be written path=%s error=%s", self._path, error)

    # --- state -----------------------------------------------------------------------------------------------------

    def _in_the_way(self, size: int) -> list[int]:
        """The oldest that must go so that one more fits; those under way may be on the station's disk already."""
        count, room = len(self._waiting) + 1, self._bytes + size
        gone = []
        for sequence, entry in self._waiting.items():
            if count <= self._most and room <= self._most_bytes:
                break
            if sequence > self._asked:
                gone.append(sequence)
                count, room = count - 1, room - entry.size
        return gone

    def _drop(self, sequences: list[int]) -> None:
        for sequence in sequences:
            entry = self._waiting.pop(sequence, None)
            if entry is not None:
                self._bytes -= entry.size
                self._lost += 1
                if self._lost == 1:
                    log.warning("more events than can wait: the oldest gave way path=%s", self._path)

    def _take(self, through: int) -> None:
        for sequence in [each for each in self._waiting if each <= through]:
            self._bytes -= self._waiting.pop(sequence).size

    def _apply(self, record: Record) -> None:
        match record.kind:
            case "outbox":
                self._outbox, self._next = record.body, max(self._next, record.number)
            case "lost":
                self._lost = record.number
            case "event":
                entry = self._waiting[record.number] = _Waiting(record.tag, record.body, record.at, record.local)
                self._bytes += entry.size
                self._next = max(self._next, record.number + 1)
            case "dropped":
                self._drop([record.number])
            case "taken":
                self._take(record.number)

    def _state(self) -> bytes:
        lines = [Record("outbox", self._next, body=self._outbox), Record("lost", self._lost)]
        lines += [Record("event", sequence, *entry) for sequence, entry in self._waiting.items()]
        return MAGIC + b"".join(map(_framed, lines))

    # --- flash -----------------------------------------------------------------------------------------------------

    async def _append(self, *lines: Record) -> None:
        try:
            await asyncio.to_thread(self._write, b"".join(map(_framed, lines)))
        except OSError as error:
            self.health.failed(error)
            raise
        self.health.wrote()
        if self._end - self._whole > COMPACT_BYTES:
            self._whole = self._end
            try:
                # The lines that were just written may not be in memory yet; to read one twice changes nothing.
                await asyncio.to_thread(self._rewrite, self._state() + b"".join(map(_framed, lines)))
            except OSError as error:
                log.error("the file of events stays as long as it is path=%s error=%s", self._path, error)

    def _write(self, data: bytes) -> None:
        with self._file:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                # What an earlier write left that failed half way is written over.
                os.ftruncate(descriptor, self._end)
                written = 0
                while written < len(data):
                    written += os.pwrite(descriptor, data[written:], self._end + written)
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, self._end)
                raise
            finally:
                os.close(descriptor)
            self._end += len(data)

    def _rewrite(self, whole: bytes) -> None:
        with self._file:
            beside = self._path.with_name(f"{self._path.name}.new")
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(whole)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            synced(self._path.parent)
            self._end = self._whole = len(whole)

    def _load(self) -> Path | None:
        content = read_regular(self._path) if self._path.exists() else b""
        records, good_end, damaged = read_frames(content, MAGIC, _decoder, _RECORD_BYTES)
        for record in records:
            self._apply(record)
        aside = None
        if damaged:
            aside = free_name(self._path)
            self._path.replace(aside)
        if damaged or len(self._outbox) != limits.OUTBOX_BYTES:
            # The lost lines may say which sequences were given.
            self._outbox, self._lost = secrets.token_bytes(limits.OUTBOX_BYTES), 0
            self._rewrite(self._state())
        else:
            self._end = self._whole = good_end
            if good_end > COMPACT_BYTES:
                self._rewrite(self._state())
        return aside


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def _framed(record: Record) -> bytes:
    return framed(_encoder.encode(record))
