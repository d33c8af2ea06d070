"""Orchestrations on disk: each with all its steps before the first of them is taken, and each step's end once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from device_agent.clock import Clock
from device_agent.protocol.messages import decode_stored, encode_value
from gateway.orchestrate.words import Step
from gateway.store.reader import Reader
from gateway.store.writer import Statement, Writer

Outcome = Literal["open", "ok", "failed", "cut", "refused"]
"""``cut``: it was not done in its time. ``refused``: there is something wrong with its files."""

_ADD = (
    "INSERT OR IGNORE INTO orchestrations (name, call, operator, began, outcome, why) VALUES (?, ?, ?, ?, 'open', '')"
)
_ADD_STEP = "INSERT OR IGNORE INTO orchestration_steps (name, number, body, state) VALUES (?, ?, ?, 'waiting')"
_BEGIN = (
    "UPDATE orchestration_steps SET state = 'begun', begun = ?, since = ?"
    " WHERE name = ? AND number = ? AND state = 'waiting'"
)
_GIVE = "UPDATE orchestration_steps SET job = ? WHERE name = ? AND number = ?"
_END = (
    "UPDATE orchestration_steps SET state = 'ended', ended = ?, result = ?"
    " WHERE name = ? AND number = ? AND state <> 'ended'"
)
_CLOSE = "UPDATE orchestrations SET outcome = ?, why = ?, ended = ? WHERE name = ? AND outcome = 'open'"
_ONE = "SELECT operator, began, outcome, why FROM orchestrations WHERE name = ?"
_STEPS = "SELECT body, state, begun, since, job, result FROM orchestration_steps WHERE name = ? ORDER BY number"
_GONE = "NOT EXISTS (SELECT 1 FROM calls WHERE calls.jid = orchestrations.call)"
_PRUNE = f"DELETE FROM orchestrations WHERE {_GONE}"  # noqa: S608 - the names of this program
_PRUNE_STEPS = (
    "DELETE FROM orchestration_steps WHERE NOT EXISTS"
    " (SELECT 1 FROM orchestrations WHERE orchestrations.name = orchestration_steps.name)"
)
WHY_CHARACTERS: Final = 2000


class Since(Struct, frozen=True):
    """How far what happened had come: numbers of events and outcomes."""

    event: int
    outcome: int


class Kept(Struct, frozen=True):
    """A step as it is on disk."""

    step: Step
    state: Literal["waiting", "begun", "ended"]
    begun: float | None
    since: Since | None
    job: str | None
    result: dict[str, Any] | None


class Orchestrated(Struct, frozen=True):
    """An orchestration as it is on disk, with its steps."""

    operator: str
    began: float
    outcome: Outcome
    why: str
    steps: list[Kept]


_step = msgspec.msgpack.Decoder(Step)
_since = msgspec.msgpack.Decoder(Since)


def root_of(name: str) -> str:
    """The jid of the call that an orchestration, or the one that it is within, is of."""
    return name.partition(".")[0]


class OrchestrationBook:
    """Rows of orchestrations and steps. ``name`` is the jid of its call, and within another one that with its step."""

    def __init__(self, *, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def one(self, name: str) -> Orchestrated | None:
        """An orchestration, as far as it is."""
        rows = await self._reader.rows(_ONE, (name,))
        if not rows:
            return None
        operator, began, outcome, why = rows[0]
        steps = [
            Kept(
                _step.decode(body),
                state,
                begun,
                None if since is None else _since.decode(since),
                job,
                None if result is None else decode_stored(result),
            )
            for body, state, begun, since, job, result in await self._reader.rows(_STEPS, (name,))
        ]
        return Orchestrated(operator, began, outcome, why, steps)

    async def add(self, name: str, operator: str, steps: Sequence[Step]) -> None:
        """All of it, before any of it is done; and let go of those whose call is forgotten. Raises ``StoreFailed``."""
        rows = [(name, step.number, encode_value(step)) for step in steps]
        added: list[Statement] = [(_ADD, [(name, root_of(name), operator, self._clock.wall())]), (_ADD_STEP, rows)]
        await self._writer.commit([*added, (_PRUNE, [()]), (_PRUNE_STEPS, [()])])

    async def since(self) -> Since:
        """How far what happens has come."""
        ((event, outcome),) = await self._reader.rows(
            "SELECT (SELECT coalesce(max(id), 0) FROM events), (SELECT coalesce(max(id), 0) FROM outcomes)"
        )
        return Since(event, outcome)

    def beginning(self, name: str, number: int, since: Since) -> list[Statement]:
        """A step is about to be taken."""
        return [(_BEGIN, [(self._clock.wall(), encode_value(since), name, number)])]

    def giving(self, name: str, number: int, jid: str) -> list[Statement]:
        """To be committed with a step's job: so one step is one job, whenever the station is killed."""
        return [(_GIVE, [(jid, name, number)])]

    def ending(self, name: str, number: int, result: dict[str, Any]) -> list[Statement]:
        """A step has its result, once."""
        return [(_END, [(self._clock.wall(), encode_value(result), name, number)])]

    def closing(self, name: str, outcome: Outcome, why: str = "") -> list[Statement]:
        """The orchestration has ended."""
        return [(_CLOSE, [(outcome, why[:WHY_CHARACTERS], self._clock.wall(), name)])]

    async def commit(self, statements: Sequence[Statement]) -> None:
        """Put on disk. Raises ``StoreFailed``."""
        await self._writer.commit(statements)
