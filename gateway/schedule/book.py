"""What became of a station's schedule, on disk: each run before it is made, and what was done of each entry."""

from __future__ import annotations

import secrets
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from device_agent.clock import Clock
from device_agent.protocol.messages import encode_value
from device_agent.schedule.turns import State, Turn
from gateway.jobs.progress import Progress, progress_of
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

RunState = Literal["waiting", "issued", "failed", "refused", "missed"]

RUNS_KEPT: Final = 100
"""Runs of each entry that are kept."""

WHY_CHARACTERS: Final = 2000
WHOLE: Final = ""
"""What stands for the schedule as a whole where entries have their names."""

_PUT = "INSERT OR REPLACE INTO schedule_states (name, body) VALUES (?, ?)"
_SWITCH = "INSERT OR REPLACE INTO schedule_switches (name, enabled) VALUES (?, ?)"
_ADD = "INSERT INTO schedule_runs (key, entry, due, at, kind, late, state, why) VALUES (?, ?, ?, ?, ?, ?, ?, '')"
_ENDED = "UPDATE schedule_runs SET state = ?, jid = ?, why = ? WHERE key = ? AND state = 'waiting'"
_RUNS = "SELECT key, entry, due, at, kind, late, state, jid, why FROM schedule_runs"
_WAITING = "WHERE state = 'waiting' ORDER BY number"
_NEWEST = "WHERE number IN (SELECT max(number) FROM schedule_runs GROUP BY entry)"
_OF_ENTRY = "WHERE entry = ? ORDER BY number DESC LIMIT ?"
_PRUNE = (
    "DELETE FROM schedule_runs WHERE state <> 'waiting' AND number IN (SELECT number FROM"
    " (SELECT number, row_number() OVER (PARTITION BY entry ORDER BY number DESC) AS place FROM schedule_runs)"
    " WHERE place > ?)"
)
_JOB_ENDS = "SELECT outcome, count(*) FROM outcomes WHERE jid = ? GROUP BY outcome"
_CALL_END = "SELECT state FROM calls WHERE jid = ? AND state <> 'open'"


class Ran(Struct, frozen=True):
    """A run, as it is on disk. ``late``: seconds since its time, where it was missed."""

    key: str
    entry: str
    due: float
    at: float
    kind: str
    late: float
    state: RunState
    jid: str | None = None
    why: str = ""


class ScheduleStore:
    """Rows of the schedule."""

    def __init__(self, *, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def states(self) -> dict[str, State]:
        """What was done of each entry."""
        rows = await self._reader.rows("SELECT name, body FROM schedule_states")
        return {name: msgspec.msgpack.decode(body, type=State) for name, body in rows}

    async def switches(self) -> dict[str, bool]:
        """Entries that somebody switched on or off, and the whole."""
        rows = await self._reader.rows("SELECT name, enabled FROM schedule_switches")
        return {name: bool(enabled) for name, enabled in rows}

    async def keep(self, states: dict[str, State]) -> None:
        """What was done of these entries. Raises ``StoreFailed``."""
        if states:
            await self._writer.commit([self._putting(states)])

    async def switch(self, name: str, *, on: bool) -> None:
        """Somebody switched an entry, or the whole. Raises ``StoreFailed``."""
        await self._writer.commit([(_SWITCH, [(name, int(on))])])

    def taking(self, turn: Turn, state: State) -> tuple[Ran, list[Statement]]:
        """A turn that is taken, and its row; commit it before anything is done for it."""
        ran = Ran(
            key=secrets.token_hex(16),
            entry=turn.entry.name,
            due=turn.due,
            at=self._clock.wall(),
            kind=turn.kind,
            late=turn.late,
            state="missed" if turn.reason else "waiting",
        )
        row = (ran.key, ran.entry, ran.due, ran.at, ran.kind, ran.late, ran.state)
        return ran, [self._putting({ran.entry: state}), (_ADD, [row])]

    async def take(self, statements: list[Statement]) -> None:
        """Raises ``StoreFailed``."""
        await self._writer.commit(statements)

    def issuing(self, key: str, jid: str) -> list[Statement]:
        """To be committed with the job or the call itself: so one run is one of them, after a kill as well."""
        return [(_ENDED, [("issued", jid, "", key)])]

    async def ended(self, key: str, state: RunState, why: str) -> None:
        """A run of which nothing came. Raises ``StoreFailed``."""
        await self._writer.commit([(_ENDED, [(state, None, why[:WHY_CHARACTERS], key)])])

    async def waiting(self) -> list[Ran]:
        """Runs that were taken and not made, oldest first."""
        return await self._runs(_WAITING)

    async def newest(self) -> dict[str, Ran]:
        """The newest run of each entry."""
        return {ran.entry: ran for ran in await self._runs(_NEWEST)}

    async def of_entry(self, name: str, count: int) -> list[Ran]:
        """The newest runs of an entry, newest first."""
        return await self._runs(_OF_ENTRY, (name, count))

    async def ends(self, jid: str) -> dict[str, int]:
        """How a job ended on how many devices, or a call; nothing while it is open."""
        found = await self._reader.rows(_JOB_ENDS, (jid,))
        found = found or [(state, 1) for (state,) in await self._reader.rows(_CALL_END, (jid,))]
        return dict(found)

    async def progress(self, jid: str) -> Progress:
        """Whether the job or the call of a run still runs."""
        return await progress_of(self._reader, jid)

    async def prune(self) -> None:
        """Let go of old runs. Raises ``StoreFailed``."""
        await self._writer.commit([(_PRUNE, [(RUNS_KEPT,)])])

    def _putting(self, states: dict[str, State]) -> Statement:
        return (_PUT, [(name, encode_value(state)) for name, state in states.items()])

    async def _runs(self, which: str, values: tuple[Any, ...] = ()) -> list[Ran]:
        return [Ran(*row) for row in await self._reader.rows(f"{_RUNS} {which}", values)]
