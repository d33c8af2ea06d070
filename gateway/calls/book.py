"""Calls on disk: each a row before it is made, and one end for each."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from device_agent.clock import Clock
from device_agent.protocol.messages import decode_stored, encode_value
from gateway.calls.call import Call, Ended, State
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

OPEN_PAGE: Final = 100_000

_ADD = "INSERT INTO calls (jid, key, body, state) VALUES (?, ?, ?, 'open')"
_END = "UPDATE calls SET state = ?, retcode = ?, value = ?, ended = ? WHERE jid = ? AND state = 'open'"
_AGAIN = "UPDATE calls SET tries = tries + 1 WHERE jid = ?"
_ROW = "SELECT body, state, tries, retcode, value, ended FROM calls"
_PRUNE_CALLS = "DELETE FROM calls WHERE ended < ?"
_PRUNE_JOBS = "DELETE FROM call_jobs WHERE NOT EXISTS (SELECT 1 FROM calls WHERE calls.jid = call_jobs.call)"
_PRUNE_CAUSES = "DELETE FROM event_causes WHERE event < (SELECT coalesce(min(id), 0) FROM events)"
_ADD_JOB = "INSERT OR IGNORE INTO call_jobs (call, key, jid) VALUES (?, ?, ?)"
_CAUSED = "INSERT OR REPLACE INTO event_causes (event, jid) SELECT max(id), ? FROM events"

_call = msgspec.msgpack.Decoder(Call)


class Kept(Struct, frozen=True):
    """A call as it is on disk; ``tries`` is how often it was begun again."""

    call: Call
    ended: Ended
    tries: int


def of_job(call: str, key: str, jid: str) -> list[Statement]:
    """To be committed with a job of a call: so one name within the call is one job."""
    return [(_ADD_JOB, [(call, key, jid)])]


def of_event(jid: str) -> Statement:
    """To be committed right behind an event: which call fired it."""
    return (_CAUSED, [(jid,)])


class CallBook:
    """Rows of calls."""

    def __init__(self, *, writer: Writer, reader: Reader, clock: Clock, keep_seconds: float) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._keep_seconds = keep_seconds

    def adding(self, call: Call, key: str) -> list[Statement]:
        """The row of a call."""
        return [(_ADD, [(call.jid, key or None, encode_value(call))])]

    def ending(self, ended: Ended) -> list[Statement]:
        """The end of a call, once."""
        value = None if ended.value is None else encode_value(ended.value)
        return [(_END, [(ended.state, ended.retcode, value, ended.ended, ended.jid)])]

    async def again(self, jids: list[str]) -> None:
        """These are begun once more. Raises ``StoreFailed``."""
        await self._writer.commit([(_AGAIN, [(jid,) for jid in jids])])

    async def open(self) -> list[Kept]:
        """Calls that have no end, the oldest first."""
        return await self._rows("WHERE state = 'open' ORDER BY jid LIMIT ?", (OPEN_PAGE,))

    async def one(self, jid: str) -> Kept | None:
        """A call by its jid."""
        return next(iter(await self._rows("WHERE jid = ?", (jid,))), None)

    async def by_key(self, key: str) -> str | None:
        """The call with this key."""
        rows = await self._reader.rows("SELECT jid FROM calls WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    async def newest(self, limit: int) -> list[Kept]:
        """The newest first."""
        return await self._rows("ORDER BY jid DESC LIMIT ?", (limit,))

    async def job(self, call: str, key: str) -> str | None:
        """The job that a call gave under this name."""
        rows = await self._reader.rows("SELECT jid FROM call_jobs WHERE call = ? AND key = ?", (call, key))
        return rows[0][0] if rows else None

    async def has_fired(self, jid: str) -> bool:
        """Whether a call has fired an event."""
        return bool(await self._reader.rows("SELECT 1 FROM event_causes WHERE jid = ? LIMIT 1", (jid,)))

    async def prune(self) -> None:
        """Let go of what ended long ago. Raises ``StoreFailed``."""
        until = self._clock.wall() - self._keep_seconds
        await self._writer.commit([(_PRUNE_CALLS, [(until,)]), (_PRUNE_JOBS, [()]), (_PRUNE_CAUSES, [()])])

    async def _rows(self, where: str, values: tuple[Any, ...]) -> list[Kept]:
        return [
            _kept(body, state, tries, retcode, value, ended)
            for body, state, tries, retcode, value, ended in await self._reader.rows(f"{_ROW} {where}", values)
        ]


def _kept(body: bytes, state: State, tries: int, retcode: int, value: bytes | None, ended: float | None) -> Kept:
    call = _call.decode(body)
    told = None if value is None else decode_stored(value)
    return Kept(call, Ended(jid=call.jid, state=state, value=told, retcode=retcode, ended=ended or 0.0), tries)
