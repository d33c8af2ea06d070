"""The journal of a real device: the same memory, kept on flash.

A file is eight bytes of magic and then records as frames (``framing``). A torn tail is what a crash leaves and is cut
off. A bad record with good ones behind it is damage: the file is set aside, what reads is kept, and no job as old as
the newest one known ever runs: its record may be the lost one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from device_agent import returns
from device_agent.durable import refuse_irregular, synced
from device_agent.framing import framed, free_name, read_frames
from device_agent.outbox import Entry, JournalUnavailable, Memory, Record, Restarting
from device_agent.protocol import limits
from device_agent.protocol.messages import encode
from device_agent.sequence import RESERVED
from device_agent.state_folder import mended
from device_agent.write_health import WriteHealth

log = logging.getLogger(__name__)

COMPACT_BYTES = 1024 * 1024
"""A file is rewritten when it has grown by this much since it was last written whole."""

PENDING_BYTES = 1024 * 1024
"""Records that wait for a disk that does not take them."""

MAGIC = b"OSJRNL1\n"
_RECORD_BYTES = limits.MESSAGE_BYTES + 1024


class Opened(NamedTuple):
    """What was found when a journal file was opened."""

    records: int
    torn_bytes: int
    set_aside: Path | None
    interrupted: list[str]


class FileJournal:
    """A journal on flash, appended and flushed before a job starts and after it ends. One process may have it open."""

    def __init__(self, path: Path, memory: Memory | None = None) -> None:
        self._path = path
        self._memory = memory or Memory()
        self._descriptor = -1
        self._end = 0
        self._written_whole = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._turn = asyncio.Lock()
        # A cancelled write goes on in its thread; the next one must not pass it.
        self._file = threading.Lock()
        self.write_failures = 0
        self.health = WriteHealth("the journal of jobs", path)

    async def open(self) -> Opened:
        """Read the file, mend it, and give every job that was interrupted the outcome ``unknown``.

        Raises ``JournalUnavailable`` when the file cannot be read or written at all.
        """
        try:
            records, torn, aside = await asyncio.to_thread(self._load)
        except OSError as error:
            raise JournalUnavailable(
                f"the journal cannot be opened: {error.strerror or error}",
                where=str(self._path),
                hint=mended(error, self._path.parent),
            ) from error
        if not self._memory.sequence.outbox:
            self._memory.renew(secrets.token_bytes(limits.OUTBOX_BYTES))
        await self.flush()
        interrupted = self._memory.interrupted()
        for jid, fun in interrupted:
            lost = returns.interrupted(jid, fun, "the agent", self.place())
            await self.done(jid, encode(lost), lost.sequence)
        return Opened(records, torn, aside, [jid for jid, _ in interrupted])

    async def refuse_until(self, jid: str) -> None:
        """No job up to this one runs any more, whether or not it is known; on disk when this returns.

        Raises ``JournalUnavailable``.
        """
        self._memory.horizon = max(self._memory.horizon, jid)
        try:
            await self._write(_framed(Record("horizon", jid)))
        except OSError as error:
            raise JournalUnavailable(error.strerror or str(error), where=str(self._path)) from error

    async def close(self) -> None:
        """Write what waits and let the file go."""
        await self.flush()
        await asyncio.to_thread(self._shut)

    def find(self, jid: str) -> Entry | None:
        """What is known of a job; None when it is new and may run."""
        return self._memory.find(jid)

    def unconfirmed(self) -> list[str]:
        """The jids whose return no station has confirmed, in the order they were done."""
        return self._memory.unconfirmed()

    @property
    def full(self) -> bool:
        """Too many returns wait for confirmation to take another job."""
        return self._memory.full

    def marks(self) -> dict[bytes, int]:
        """By the kid of each signer, the highest number of its jobs that ever started here."""
        return self._memory.marks()

    def oldest(self) -> tuple[bytes, int]:
        """The outbox, and the lowest sequence of it that may still be sent."""
        return self._memory.oldest()

    def place(self) -> tuple[bytes, int]:
        """The outbox and sequence of the next return; ``(b"", 0)`` when no sequence is reserved on flash."""
        return self._memory.place()

    async def started(self, jid: str, fun: str, kid: bytes, seq: int) -> None:
        """Remember that a job starts, and its signer's number for it; both are on disk when this returns.

        Raises ``JournalUnavailable``.
        """
        self._memory.mark(kid, seq)
        self._memory.start(jid, fun)
        try:
            await self._write(_framed(Record("started", jid, fun, b"", kid, seq)))
        except OSError as error:
            self._memory.unstart(jid)
            self.write_failures += 1
            raise JournalUnavailable(f"{error.strerror or error}", where=str(self._path)) from error

    def restarts(self) -> dict[str, Restarting]:
        """By jid, what restarted the device and has not returned."""
        return self._memory.restarts()

    async def restarting(self, jid: str, restarting: Restarting) -> None:
        """Remember that a job that has started restarts the device; it is on disk when this returns.

        Raises ``JournalUnavailable``.
        """
        try:
            await self._write(_framed(Record("started", jid, restarting.fun, msgspec.msgpack.encode(restarting))))
        except OSError as error:
            self.write_failures += 1
            raise JournalUnavailable(f"{error.strerror or error}", where=str(self._path)) from error
        self._memory.restart(jid, restarting)

    async def done(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """Remember what a job that ran returned. On disk when this returns, or kept in memory and tried again."""
        self.answered(jid, body, sequence)
        await self.flush()

    def answered(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """Remember the answer to a job that will not run; written by the next ``flush``."""
        self._memory.finish(jid, body, sequence)
        self._pend(Record("done", jid, body=body, seq=sequence))

    def forgotten(self, jid: str) -> None:
        """Remember only that a job must not run; written by the next ``flush``."""
        self._memory.forget(jid)
        self._pend(Record("forgotten", jid))

    def confirmed(self, jids: Iterable[str]) -> None:
        """The station has these returns; written by the next ``flush``."""
        for jid in jids:
            if self._memory.confirm(jid):
                self._pend(Record("confirmed", jid))

    async def flush(self) -> None:
        """Write what waits. A disk that is full is not an error here: it is counted and tried again next time."""
        if not self._pending and not self._memory.sequence.scarce:
            if not self.health.is_failing:
                return
            # Whether the disk works again is found out with a record that changes nothing.
            self._pend(Record("horizon", self._memory.horizon))
        try:
            await self._write_reserving()
            if self._end - self._written_whole > COMPACT_BYTES:
                await self._compact()
        except OSError as error:
            self.write_failures += 1
            log.error("the journal cannot be written path=%s error=%s", self._path, error)

    async def stuck(self) -> str | None:
        """None when the file answers: a write that hangs keeps this waiting. A disk that is full is no reason."""
        async with self._turn:
            await asyncio.to_thread(os.fstat, self._descriptor)
        return None

    def _pend(self, record: Record) -> None:
        framed = _framed(record)
        # While the disk is full this is all that grows. What is dropped here is still known in memory, and after a
        # restart it costs a return ``unknown`` or a repeat, never a second run: the start itself was on disk.
        while self._pending and self._pending_bytes + len(framed) > PENDING_BYTES:
            self._pending_bytes -= len(self._pending.pop(0))
        self._pending.append(framed)
        self._pending_bytes += len(framed)

    async def _write(self, own: bytes) -> None:
        async with self._turn:
            batch, self._pending, self._pending_bytes = self._pending, [], 0
            if not batch and not own:
                return
            try:
                await asyncio.to_thread(self._append, b"".join(batch) + own)
            except OSError:
                self._pending = batch + self._pending
                self._pending_bytes = sum(map(len, self._pending))
                raise

    async def _write_reserving(self) -> None:
        """Write what waits, and with it a limit for sequences when they get scarce."""
        sequence = self._memory.sequence
        if not sequence.scarce:
            await self._write(b"")
            return
        limit = sequence.next + RESERVED
        await self._write(_framed(Record("outbox", "", body=sequence.outbox, seq=limit)))
        sequence.reserved(limit)

    async def _compact(self) -> None:
        async with self._turn:
            whole = MAGIC + b"".join(map(_framed, self._memory.records()))
            await asyncio.to_thread(self._rewrite, whole)

    # --- in a thread ---------------------------------------------------------------------------------------------

    def _append(self, data: bytes) -> None:
        with self._file:
            written = 0
            try:
                while written < len(data):
                    written += os.write(self._descriptor, data[written:])
                os.fsync(self._descriptor)
            except OSError as error:
                self.health.failed(error)
                # What was partly written must not stay between good records; should it, opening copes with that too.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, self._end)
                raise
            self.health.wrote()
            self._end += len(data)

    def _rewrite(self, whole: bytes) -> None:
        with self._file:
            beside = self._path.with_suffix(self._path.suffix + ".new")
            with beside.open("wb") as file:
                file.write(whole)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            synced(self._path.parent)
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            self._end = self._written_whole = len(whole)

    def _load(self) -> tuple[int, int, Path | None]:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        refuse_irregular(self._descriptor, self._path)
        content = self._path.read_bytes()
        records, good_end, damaged = read_frames(content, MAGIC, _decoder, _RECORD_BYTES)
        for record in records:
            self._memory.apply(record)
        if damaged:
            aside = free_name(self._path)
            self._path.replace(aside)
            self._memory.horizon = self._memory.newest()
            # The lost records may say which sequences were given.
            self._memory.renew(secrets.token_bytes(limits.OUTBOX_BYTES))
            self._rewrite(MAGIC + b"".join(map(_framed, self._memory.records())))
            return len(records), 0, aside
        if good_end == 0:
            self._rewrite(MAGIC)
            return 0, len(content), None
        torn = len(content) - good_end
        if torn:
            os.ftruncate(self._descriptor, good_end)
            os.fsync(self._descriptor)
        self._end = self._written_whole = good_end
        if good_end > COMPACT_BYTES:
            self._rewrite(MAGIC + b"".join(map(_framed, self._memory.records())))
        return len(records), torn, None

    def _shut(self) -> None:
        with self._file:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def _framed(record: Record) -> bytes:
    return framed(_encoder.encode(record))
