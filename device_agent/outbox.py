"""What a device remembers of jobs: which ran and what they returned, until it is confirmed and for a while after.

It is why nothing runs twice: a job is written here before it starts, and one that is known here is answered from here.
"""

from __future__ import annotations

import contextlib
import enum
import secrets
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from device_agent.errors import OutstationError
from device_agent.protocol import limits
from device_agent.sequence import UNBOUNDED, Sequence

MARKS_KEPT = 64
"""Signers whose highest job number is kept; no more are ever believed."""

JIDS_REMEMBERED = 4096
"""Jobs whose result is gone but whose jid is still known; older ones are refused by age."""

UNCONFIRMED_RETURNS = 1024
UNCONFIRMED_BYTES = 16 * 1024 * 1024
KEPT_BYTES = 4 * 1024 * 1024
"""Bounds of what is held in memory and on flash: returns no station confirmed, and confirmed ones kept for repeats."""


class JournalUnavailable(OutstationError):
    """The journal cannot be written, so nothing may start: a crash would forget that it ran."""

    default_id = "journal.unavailable"


class Place(enum.Enum):
    """How far a known job is."""

    STARTED = "started"
    DONE = "done"
    FORGOTTEN = "forgotten"


class Entry(NamedTuple):
    """A known job; ``body`` is its encoded ``Return`` when it is done."""

    place: Place
    body: bytes = b""


_STARTED = Entry(Place.STARTED)
_FORGOTTEN = Entry(Place.FORGOTTEN)


class Restarting(Struct, array_like=True, frozen=True):
    """A restart of the device that is not over: the boot id before it, and how many seconds it may take."""

    fun: str
    boot_id: str
    within: float


class Journal(Protocol):
    """What a device needs from its memory of jobs. Questions are answered at once; writing may wait for flash."""

    def find(self, jid: str) -> Entry | None:
        """What is known of a job; None when it is new and may run."""

    def unconfirmed(self) -> list[str]:
        """The jids whose return no station has confirmed, in the order they were done."""

    def marks(self) -> dict[bytes, int]:
        """By the kid of each signer, the highest number of its jobs that ever started here."""

    def oldest(self) -> tuple[bytes, int]:
        """The outbox, and the lowest sequence of it that may still be sent."""

    def place(self) -> tuple[bytes, int]:
        """The outbox and sequence of the next return; ``(b"", 0)`` when none can be given for certain only once."""

    def restarts(self) -> dict[str, Restarting]:
        """By jid, what restarted the device and has not returned."""

    async def restarting(self, jid: str, restarting: Restarting) -> None:
        """Remember that a job that has started restarts the device; it is on disk when this returns.

        Raises ``JournalUnavailable``.
        """

    @property
    def full(self) -> bool:
        """Too many returns wait for confirmation to take another job."""

    async def started(self, jid: str, fun: str, kid: bytes, seq: int) -> None:
        """Remember that a job starts, and its signer's number for it; both are on disk when this returns.

        Raises ``JournalUnavailable``.
        """

    async def done(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """Remember what a job that ran returned. On disk when this returns, or kept in memory and tried again."""

    def answered(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """Remember the answer to a job that will not run (cancelled, refused, expired); written soon."""

    def forgotten(self, jid: str) -> None:
        """Remember only that a job must not run; written soon."""

    def confirmed(self, jids: Iterable[str]) -> None:
        """The station has these returns; written soon."""


class Record(Struct, array_like=True, frozen=True):
    """One line of the file. ``horizon`` has the newest jid of all that are refused by age.

    ``mark`` says no more than a signer's highest number, which ``started`` says beside its job. ``done`` has the
    sequence of its return, ``outbox`` the outbox and the lowest sequence that is not reserved. A second ``started``
    with a ``Restarting`` as its body says that the job restarts the device; a release that knows none reads the first.
    """

    kind: Literal["started", "done", "confirmed", "forgotten", "horizon", "mark", "outbox"]
    jid: str
    fun: str = ""
    body: bytes = b""
    kid: bytes = b""
    seq: int = 0


class _Open(NamedTuple):
    body: bytes
    sequence: int


class Memory:
    """The bounded state behind every journal."""

    __slots__ = (
        "_forgotten",
        "_jids",
        "_kept",
        "_kept_bytes",
        "_marks",
        "_open",
        "_open_bytes",
        "_restarts",
        "_results",
        "_started",
        "horizon",
        "sequence",
    )

    def __init__(self, results: int = limits.JOURNAL_RESULTS, jids: int = JIDS_REMEMBERED) -> None:
        self._results = results
        self._jids = jids
        self._started: dict[str, str] = {}
        self._restarts: dict[str, Restarting] = {}
        self._open: dict[str, _Open] = {}
        self._open_bytes = 0
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0
        self._forgotten: set[str] = set()
        self._marks: dict[bytes, int] = {}
        self.horizon = ""
        self.sequence = Sequence()

    def find(self, jid: str) -> Entry | None:
        """What is known of a job; None when it is new and may run."""
        waiting = self._open.get(jid)
        body = waiting.body if waiting is not None else self._kept.get(jid)
        if body is not None:
            return Entry(Place.DONE, body)
        if jid in self._started:
            return _STARTED
        if jid <= self.horizon or jid in self._forgotten:
            return _FORGOTTEN
        return None

    def unconfirmed(self) -> list[str]:
        """The jids whose return no station has confirmed, in the order they were done."""
        return list(self._open)

    def marks(self) -> dict[bytes, int]:
        """By the kid of each signer, the highest number of its jobs that ever started here."""
        return dict(self._marks)

    def oldest(self) -> tuple[bytes, int]:
        """The outbox, and the lowest sequence of it that may still be sent."""
        # Not the first of them: what was begun first need not have been answered first.
        waiting = (entry.sequence for entry in self._open.values() if entry.sequence)
        return self.sequence.outbox, min(waiting, default=self.sequence.next)

    def place(self) -> tuple[bytes, int]:
        """The outbox and sequence of the next return; ``(b"", 0)`` when none can be given for certain only once."""
        return self.sequence.take()

    def renew(self, outbox: bytes) -> None:
        """Begin another outbox. What waits keeps its place in the one before."""
        self.sequence.start(outbox)
        self._open = {jid: _Open(entry.body, 0) for jid, entry in self._open.items()}

    def mark(self, kid: bytes, seq: int) -> None:
        """A signer's job with this number starts; a mark never sinks, not even when the start fails."""
        if kid and (kid in self._marks or len(self._marks) < MARKS_KEPT):
            self._marks[kid] = max(self._marks.get(kid, -1), seq)

    @property
    def full(self) -> bool:
        """Too many returns wait for confirmation to take another job."""
        return len(self._open) >= UNCONFIRMED_RETURNS or self._open_bytes >= UNCONFIRMED_BYTES

    def start(self, jid: str, fun: str) -> None:
        """A job starts."""
        if jid not in self._open and jid not in self._kept and jid not in self._forgotten:
            self._started[jid] = fun

    def restart(self, jid: str, restarting: Restarting) -> None:
        """A job that has started restarts the device."""
        if jid in self._started:
            self._restarts[jid] = restarting

    def restarts(self) -> dict[str, Restarting]:
        """By jid, what restarted the device and has not returned."""
        return dict(self._restarts)

    def unstart(self, jid: str) -> None:
        """It did not start after all."""
        self._started.pop(jid, None)

    def interrupted(self) -> list[tuple[str, str]]:
        """Jobs that started, have no return, and did not mean to restart the device; with their functions."""
        return [(jid, fun) for jid, fun in self._started.items() if jid not in self._restarts]

    def finish(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """A job has its return; the first one stays."""
        self._started.pop(jid, None)
        self._restarts.pop(jid, None)
        if jid in self._open or jid in self._kept or jid in self._forgotten:
            return
        self._open[jid] = _Open(body, sequence)
        self._open_bytes += len(body)

    def confirm(self, jid: str) -> bool:
        """The station has this return; False when none was waiting."""
        waiting = self._open.pop(jid, None)
        if waiting is None:
            return False
        body = waiting.body
        self._open_bytes -= len(body)
        self._kept[jid] = body
        self._kept_bytes += len(body)
        while len(self._kept) > self._results or self._kept_bytes > KEPT_BYTES:
            oldest = next(iter(self._kept))
            self._kept_bytes -= len(self._kept.pop(oldest))
            self.forget(oldest)
        return True

    def forget(self, jid: str) -> None:
        """Only the jid stays; when there are too many of those, the oldest eighth goes and its age is the horizon."""
        if jid <= self.horizon or jid in self._started or jid in self._open or jid in self._kept:
            return
        self._forgotten.add(jid)
        if len(self._forgotten) > self._jids:
            oldest = sorted(self._forgotten)[: max(1, self._jids // 8)]
            self._forgotten.difference_update(oldest)
            self.horizon = oldest[-1]

    def newest(self) -> str:
        """The newest jid known in any way, or ""."""
        return max((self.horizon, *self._started, *self._open, *self._kept, *self._forgotten))

    def apply(self, record: Record) -> None:
        """One line of a file; repeating one changes nothing."""
        match record.kind:
            case "started":
                self.mark(record.kid, record.seq)
                self.start(record.jid, record.fun)
                if record.body:
                    with contextlib.suppress(msgspec.MsgspecError):
                        self.restart(record.jid, msgspec.msgpack.decode(record.body, type=Restarting))
            case "done":
                self.finish(record.jid, record.body, record.seq)
            case "confirmed":
                self.confirm(record.jid)
            case "forgotten":
                self.forget(record.jid)
            case "horizon":
                self.horizon = max(self.horizon, record.jid)
            case "mark":
                self.mark(record.kid, record.seq)
            case "outbox":
                self.sequence.restored(record.body, record.seq)

    def records(self) -> Iterator[Record]:
        """The shortest file with this state."""
        if self.sequence.outbox:
            yield Record("outbox", "", body=self.sequence.outbox, seq=self.sequence.limit)
        for kid, seq in self._marks.items():
            yield Record("mark", "", kid=kid, seq=seq)
        if self.horizon:
            yield Record("horizon", self.horizon)
        for jid in sorted(self._forgotten):
            yield Record("forgotten", jid)
        for jid, body in self._kept.items():
            yield Record("done", jid, body=body)
            yield Record("confirmed", jid)
        for jid, waiting in self._open.items():
            yield Record("done", jid, body=waiting.body, seq=waiting.sequence)
        for jid, fun in self._started.items():
            yield Record("started", jid, fun)
        for jid, restarting in self._restarts.items():
            yield Record("started", jid, restarting.fun, msgspec.msgpack.encode(restarting))


class MemoryJournal(Memory):
    """A journal that lasts as long as its process: for the swarm and for tests."""

    __slots__ = ()

    def __init__(self, results: int = limits.JOURNAL_RESULTS, jids: int = JIDS_REMEMBERED) -> None:
        super().__init__(results, jids)
        self.sequence.start(secrets.token_bytes(limits.OUTBOX_BYTES))
        self.sequence.reserved(UNBOUNDED)

    async def started(self, jid: str, fun: str, kid: bytes, seq: int) -> None:
        """Remember that a job starts, and its signer's number for it."""
        self.mark(kid, seq)
        self.start(jid, fun)

    async def restarting(self, jid: str, restarting: Restarting) -> None:
        """Remember that a job restarts the device."""
        self.restart(jid, restarting)

    async def done(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """Remember what a job that ran returned."""
        self.finish(jid, body, sequence)

    def answered(self, jid: str, body: bytes, sequence: int = 0) -> None:
        """Remember the answer to a job that will not run."""
        self.finish(jid, body, sequence)

    def forgotten(self, jid: str) -> None:
        """Remember only that a job must not run."""
        self.forget(jid)

    def confirmed(self, jids: Iterable[str]) -> None:
        """The station has these returns."""
        for jid in jids:
            self.confirm(jid)
