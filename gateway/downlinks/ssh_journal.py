"""The journals of SSH devices, kept in the station's store: the same promises as those of an agent's file.

A job is on disk before it starts. A return is kept until it is confirmed, which here means that the station has it;
afterwards only its jid, so that it never runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from device_agent import returns
from device_agent.outbox import Entry, JournalUnavailable, Memory, Restarting
from device_agent.parts import Part
from device_agent.protocol import limits
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import encode
from device_agent.sequence import RESERVED
from gateway.store.damage import ROW, decode
from gateway.store.reader import Reader
from gateway.store.writer import Statement, StoreFailed, Writer

log = logging.getLogger(__name__)

JIDS_KEPT: Final = 512
"""Jobs of a device that are remembered; older ones are refused by age."""

HORIZON_ROW: Final = "ssh_horizon"
"""Of the table ``station``: for what, and the newest jid that never runs."""

FLUSH_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 1.0

_LOAD = "SELECT device, jid, place, fun, body, sequence FROM ssh_jobs ORDER BY rowid"
_START = "INSERT OR IGNORE INTO ssh_jobs (device, jid, place, fun, body, sequence) VALUES (?, ?, 'started', ?, NULL, 0)"
_RESTART = "UPDATE ssh_jobs SET body = ? WHERE device = ? AND jid = ? AND place = 'started'"
_MARK = (
    "INSERT INTO ssh_marks (device, kid, seq) VALUES (?, ?, ?)"
    " ON CONFLICT (device, kid) DO UPDATE SET seq = max(seq, excluded.seq)"
)
_PUT = (
    "INSERT INTO ssh_jobs (device, jid, place, fun, body, sequence) VALUES (?, ?, ?, '', ?, ?)"
    " ON CONFLICT (device, jid) DO UPDATE SET place=excluded.place, body=excluded.body, sequence=excluded.sequence"
)
_OUTBOX = "INSERT OR REPLACE INTO ssh_outboxes (device, outbox, reserved, horizon) VALUES (?, ?, ?, ?)"
_AGED = "DELETE FROM ssh_jobs WHERE device = ? AND place = 'forgotten' AND jid <= ?"
_DROP = (
    "DELETE FROM ssh_jobs WHERE device = ?",
    "DELETE FROM ssh_marks WHERE device = ?",
    "DELETE FROM ssh_outboxes WHERE device = ?",
)


class SshJournals(Part):
    """All of them, and the loop that writes what may be written soon."""

    name: ClassVar[str] = "ssh-journals"

    def __init__(self, *, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._of: dict[str, SshJournal] = {}
        self._pending: list[Statement] = []
        self._dropping = False
        self._reserving: list[tuple[SshJournal, int]] = []
        self._horizon = ""
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Load them. A job that was under way when the station ended has the outcome ``unknown``."""
        self._horizon = await self._damaged()
        for device, outbox, reserved, horizon in await self._reader.rows(
            "SELECT device, outbox, reserved, horizon FROM ssh_outboxes"
        ):
            memory = Memory(0, JIDS_KEPT)
            memory.sequence.restored(outbox, reserved)
            memory.horizon = max(horizon, self._horizon)
            self._of[device] = SshJournal(device, self, memory)
        for device, jid, place, fun, body, sequence in await self._reader.rows(_LOAD):
            self._begun(device).load(jid, place, fun, body, sequence)
        for device, kid, seq in await self._reader.rows("SELECT device, kid, seq FROM ssh_marks"):
            self._begun(device).memory.mark(kid, seq)
        for journal in self._of.values():
            journal.reserve()
        await self.flush()
        for journal in self._of.values():
            journal.end_interrupted()
        await self.flush()
        self.spawn(self._run(), "write")

    async def drain(self) -> None:
        """Write what waits."""
        await self.flush()

    def of(self, device: str) -> SshJournal:
        """The journal of a device, begun now where there is none."""
        journal = self._begun(device)
        journal.reserve()
        return journal

    def _begun(self, device: str) -> SshJournal:
        journal = self._of.get(device)
        if journal is None:
            memory = Memory(0, JIDS_KEPT)
            memory.sequence.start(secrets.token_bytes(limits.OUTBOX_BYTES))
            memory.horizon = self._horizon
            journal = self._of[device] = SshJournal(device, self, memory)
        return journal

    async def _damaged(self) -> str:
        """The newest job that the store may have lost, by damage or since the backup that it is: no older one runs."""
        kept = dict(await self._reader.rows("SELECT key, value FROM station WHERE key IN (?, ?)", (ROW, HORIZON_ROW)))
        seen, _, before = str(kept.get(HORIZON_ROW, "")).partition(" ")
        damage = decode(kept[ROW]) if ROW in kept else None
        if damage is None or seen == f"{damage.at}":
            return before
        horizon = max(before, JidMaker().next(damage.at))
        row = (HORIZON_ROW, f"{damage.at} {horizon}")
        await self._writer.commit([("INSERT OR REPLACE INTO station VALUES (?, ?)", [row])])
        return horizon

    def names(self) -> list[str]:
        """Every device that has one."""
        return list(self._of)

    def drop(self, device: str) -> None:
        """The device belongs here no more."""
        if self._of.pop(device, None) is not None:
            self._dropping = True
            self.add(*((sql, [(device,)]) for sql in _DROP))

    def add(self, *statements: Statement) -> None:
        """Write these soon, in this order."""
        self._pending += statements
        self._wake.set()

    def reserve(self, journal: SshJournal, limit: int, statement: Statement) -> None:
        """Reserve sequences up to this limit; the journal is told when they are."""
        self._reserving.append((journal, limit))
        self.add(statement)

    async def write(self, statements: list[Statement]) -> None:
        """Write these now. Raises ``StoreFailed``."""
        if not self._dropping:
            await self._writer.commit(statements)
            return
        # A device that comes again must not lose what it began to what its predecessor left.
        async with self._turn:
            ahead, self._pending = self._pending, []
            try:
                await self._writer.commit([*ahead, *statements])
            except StoreFailed:
                self._pending = ahead + self._pending
                self._wake.set()
                raise

    async def flush(self) -> None:
        """All that waits is on disk when this returns, or is kept and tried again."""
        async with self._turn:
            if not self._pending:
                # Whoever had the turn before has written for all who waited.
                return
            pending, self._pending = self._pending, []
            reserving, self._reserving = self._reserving, []
            dropping, self._dropping = self._dropping, False
            try:
                await self._writer.commit(pending)
                for journal, limit in reserving:
                    journal.reserved(limit)
            except StoreFailed as error:
                self._pending = pending + self._pending
                self._reserving = reserving + self._reserving
                self._dropping = dropping or self._dropping
                self._wake.set()
                log.error("journals of SSH devices not written, tried again error=%s", error.found)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()
            if self._pending:
                await asyncio.sleep(RETRY_SECONDS)


class SshJournal:
    """Implements ``Journal`` for one device."""

    __slots__ = ("_journals", "_limit", "_name", "memory")

    def __init__(self, name: str, journals: SshJournals, memory: Memory) -> None:
        self.memory = memory
        self._name = name
        self._journals = journals
        self._limit = memory.sequence.limit

    def find(self, jid: str) -> Entry | None:
        """What is known of a job; None when it is new and may run."""
        return self.memory.find(jid)

    def unconfirmed(self) -> list[str]:
        """The jids whose return is not on disk at the station, in the order they were done."""
        return self.memory.unconfirmed()

    def marks(self) -> dict[bytes, int]:
        """By the kid of each signer, the highest number of its jobs that ever started here."""
        return self.memory.marks()

    def oldest(self) -> tuple[bytes, int]:
        """The outbox, and the lowest sequence of it that may still be sent."""
        return self.memory.oldest()

    def place(self) -> tuple[bytes, int]:
        """The outbox and sequence of the next return; ``(b"", 0)`` when none is reserved on disk."""
        place = self.memory.place()
        self.reserve()
        return place

    @property
    def full(self) -> bool:
        """Too many returns wait for confirmation to take another job."""
        return self.memory.full

    async def started(self, jid: str, fun: str, kid: bytes, seq: int) -> None:
        """Remember that a job starts, and its signer's number; on disk when this returns.

        Raises ``JournalUnavailable``.
        """
        self.memory.mark(kid, seq)
        self.memory.start(jid, fun)
        try:
            await self._journals.write([(_START, [(self._name, jid, fun)]), (_MARK, [(self._name, kid, seq)])])
        except StoreFailed as error:
            self.memory.unstart(jid)
            raise JournalUnavailable(error.found or error.what, where="the station's store") from error

    def restarts(self) -> dict[str, Restarting]:
        """By jid, what restarted the device and has not returned."""
        return self.memory.restarts()

    async def restarting(self, jid: str, restarting: Restarting) -> None:
        """Remember that a job that has started restarts the device; on disk when this returns.

        Raises ``JournalUnavailable``.
        """
        try:
            await self._journals.write([(_RESTART, [(msgspec.msgpack.encode(restarting), self._name, jid)])])
        except StoreFailed as error:
            raise JournalUnavailable(error.found or error.what, where="the station's store") from error
        self.memory.restart(jid, restarting)

    async def done(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """Remember what a job that ran returned."""
        self.answered(jid, body, sequence)
        await self._journals.flush()

    def answered(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """Remember the answer to a job that will not run; written soon."""
        self.memory.finish(jid, body, sequence)
        self._journals.add((_PUT, [(self._name, jid, "done", body, sequence)]))

    def forgotten(self, jid: str) -> None:
        """Remember only that a job must not run; written soon."""
        horizon = self.memory.horizon
        self.memory.forget(jid)
        self._journals.add((_PUT, [(self._name, jid, "forgotten", None, 0)]))
        self._age(horizon)

    def confirmed(self, jids: Iterable[str]) -> None:
        """The station has these returns; written soon."""
        horizon = self.memory.horizon
        known = [jid for jid in jids if self.memory.confirm(jid)]
        if known:
            self._journals.add((_PUT, [(self._name, jid, "forgotten", None, 0) for jid in known]))
            self._age(horizon)

    def load(self, jid: str, place: str, fun: str, body: bytes | None, sequence: int) -> None:
        """A row as it was on disk."""
        if place == "started":
            self.memory.start(jid, fun)
            if body is not None:
                with contextlib.suppress(msgspec.MsgspecError):
                    self.memory.restart(jid, msgspec.msgpack.decode(body, type=Restarting))
        elif place == "done" and body is not None:
            self.memory.finish(jid, body, sequence)
        else:
            self.memory.forget(jid)

    def end_interrupted(self) -> None:
        """Jobs that were under way when the station ended may have run."""
        for jid, fun in self.memory.interrupted():
            lost = returns.interrupted(jid, fun, "the gateway", self.place())
            self.answered(jid, encode(lost), lost.sequence)

    def reserve(self) -> None:
        """See to it that there are sequences to give."""
        sequence = self.memory.sequence
        if not sequence.scarce or self._limit > sequence.limit:
            return
        self._limit = max(sequence.limit, sequence.next) + RESERVED
        self._journals.reserve(self, self._limit, self._outbox())

    def reserved(self, limit: int) -> None:
        """They are on disk."""
        self.memory.sequence.reserved(limit)

    def _age(self, before: str) -> None:
        horizon = self.memory.horizon
        if horizon != before:
            self._journals.add(self._outbox(), (_AGED, [(self._name, horizon)]))

    def _outbox(self) -> Statement:
        return (_OUTBOX, [(self._name, self.memory.sequence.outbox, self._limit, self.memory.horizon)])
